"""A model from a hub of our own on this machine: what is taken, how it goes on after a cancel or a fault, and what is refused."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from trainer import hub, hub_model
from trainer.errors import Interrupted, UserError
from trainer.events import Event, EventLog, Phase, Progress, Silent

NAME = "someone/Video-Model"
INDEX = {
    "_class_name": "Pipeline",
    "transformer": ["diffusers", "T"],
    "vae": ["diffusers", "V"],
    "tokenizer": ["transformers", "X"],
    "extra": [None, None],
}
FILES = {
    "model_index.json": json.dumps(INDEX).encode(),
    "README.md": b"about",
    "original.safetensors": bytes(5_000_000),
    "transformer/config.json": b"{}",
    "transformer/diffusion_pytorch_model-00001-of-00002.safetensors": bytes(range(256)) * 9_000,
    "transformer/diffusion_pytorch_model-00002-of-00002.safetensors": b"two" * 100_000,
    "transformer/diffusion_pytorch_model.safetensors.index.json": b"{}",
    "transformer/diffusion_pytorch_model.fp16.safetensors": bytes(3_000_000),
    "transformer/diffusion_pytorch_model.bin": bytes(3_000_000),
    "vae/config.json": b"{}",
    "vae/odd_name.safetensors": b"vae" * 50_000,
    "tokenizer/tokenizer.json": b"{}",
    "tokenizer/spiece.model": b"pieces",
    "tokenizer/code.py": b"import os",
    "extra/model.safetensors": b"not in use",
}  # fmt: skip
NEEDED = {name for name in FILES if name.split("/")[0] in ("transformer", "vae", "tokenizer")} - {
    "transformer/diffusion_pytorch_model.fp16.safetensors", "transformer/diffusion_pytorch_model.bin", "tokenizer/code.py",
} | {"model_index.json"}  # fmt: skip


class Hub(ThreadingHTTPServer):
    """Serves one model, and counts the bytes of each file that were asked for."""

    served: dict[str, int]
    broken = ""  # a file that cannot be had


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        if self.path.startswith(f"/api/models/{NAME}"):
            siblings = [{"rfilename": name, "size": len(data)} for name, data in FILES.items()]
            return self.answer(200, json.dumps({"id": NAME, "sha": "0123456789abcdef", "siblings": siblings}).encode())
        file = self.path.partition("/resolve/0123456789abcdef/")[2]
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if file not in FILES or file == self.server.broken or not found:
            return self.answer(404, b"")
        data = FILES[file][int(found[1]) : int(found[2]) + 1]
        self.server.served[file] = self.server.served.get(file, 0) + len(data)
        return self.answer(206, data)

    do_HEAD = do_GET

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    from huggingface_hub import constants, file_download

    served = Hub(("127.0.0.1", 0), Handler)
    served.served = {}
    endpoint = f"http://127.0.0.1:{served.server_address[1]}"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    for module in (constants, file_download):
        monkeypatch.setattr(
            module, "HUGGINGFACE_CO_URL_TEMPLATE", f"{endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}", raising=False
        )
    monkeypatch.setattr(hub, "_local", lambda name, patterns, folder, where, kind: folder / name if (folder / name).is_dir() else None)
    monkeypatch.setattr(hub_model, "PIECE", 1_000_000)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    yield served
    served.shutdown()
    served.server_close()


class Heard(Silent):
    """Hears all, and cancels after some progress."""

    def __init__(self, cancel_after: int = 1_000) -> None:
        self.events: list[Event] = []
        self.left = cancel_after

    def emit(self, event: Event) -> None:
        self.events.append(event)
        self.left -= isinstance(event, Progress)

    def request(self) -> str | None:  # type: ignore[override]
        return "cancel" if self.left <= 0 else None


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_only_what_is_needed_comes_and_its_size_is_told_first(server: Hub, tmp_path: Path) -> None:
    heard = Heard()
    folder = hub.model(NAME, tmp_path, "model.source", EventLog(heard))
    assert folder == tmp_path / NAME and files_of(folder) == {name: FILES[name] for name in NEEDED}
    assert server.served == {name: len(FILES[name]) for name in NEEDED}
    size = sum(len(FILES[name]) for name in NEEDED)
    first = heard.events[0]
    assert isinstance(first, Phase) and first.detail == f"Downloading '{NAME}': {size / 1e9:.1f} GB in {len(NEEDED)} files"
    told = [event.done for event in heard.events if isinstance(event, Progress)]
    assert told == sorted(told) and told[-1] == size // 10**6 and len(told) >= 3
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    server.served.clear()
    assert hub.model(NAME, tmp_path, "model.source") == folder and server.served == {}


def test_a_cancel_or_a_fault_keeps_what_came(server: Hub, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        hub.model(NAME, tmp_path, "model.source", EventLog(Heard(cancel_after=2)))
    server.broken = "vae/odd_name.safetensors"
    with pytest.raises(UserError, match=rf"model\.source: '{NAME}' could not be downloaded: .*running again goes on where it stopped"):
        hub.model(NAME, tmp_path, "model.source")
    assert not (tmp_path / NAME).exists()
    server.broken = ""
    heard = Heard()
    folder = hub.model(NAME, tmp_path, "model.source", EventLog(heard))
    assert files_of(folder) == {name: FILES[name] for name in NEEDED}
    assert server.served == {name: len(FILES[name]) for name in NEEDED}  # no byte twice
    first = heard.events[0]
    assert isinstance(first, Phase) and first.detail.endswith("GB of them still to come")


def test_what_is_refused(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"'someone/Other' could not be downloaded"):
        hub.model("someone/Other", tmp_path, "model.source")
    monkeypatch.setattr(hub_model.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    with pytest.raises(UserError, match=r"needs 0\.0 GB more, and 0\.0 GB are free on the disk of '.*'\. Free space there"):
        hub.model(NAME, tmp_path, "model.source")
    monkeypatch.setitem(FILES, "model_index.json", FILES["model_index.json"])
    monkeypatch.delitem(FILES, "model_index.json")
    with pytest.raises(UserError, match=rf"'{NAME}' holds no model_index\.json\. Give a repository in diffusers' layout"):
        hub.model(NAME, tmp_path, "model.source")
    assert server.served.keys() == {"model_index.json"}


def test_downloads_are_off_unless_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_local", lambda *_: None)
    with pytest.raises(UserError, match=r"is not on this machine and downloads are off\. Download it, give the path of its folder"):
        hub.model(NAME, None, "model.source")


@pytest.mark.parametrize("wanted", ["model", "dataset"])
def test_without_a_connection_the_setting_is_named(wanted: str, server: Hub, tmp_path: Path) -> None:
    """Which ended in a traceback: the errors of httpx are neither the hub's nor the system's."""
    server.shutdown()
    server.server_close()
    with pytest.raises(
        UserError, match=rf"^source: '{NAME}' could not be downloaded: .*[^.]\. Check the name and the connection"
    ) as refused:
        hub.model(NAME, tmp_path, "source") if wanted == "model" else hub.snapshot(NAME, ["*.mp4"], tmp_path, True, "source")
    assert "\n" not in str(refused.value)
