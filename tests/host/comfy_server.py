"""A real ComfyUI in a process of its own, with its own folders and this pack in custom_nodes."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import websocket

PACK_NAME = "Video-Trainer.1"  # a folder name that is no Python identifier
START_LIMIT = 240.0  # seconds
TEXT = 3  # of binary messages, those of a line of text on a node
TORCHAUDIO = {  # core imports it at start; where it is not installed an empty one does
    "__init__.py": "from . import functional, transforms\n",
    "functional.py": "",
    "transforms.py": "class MelScale:\n    pass\n",
}


class ComfyServer:
    """One ComfyUI on a free port; `folder` is its base directory. With `on_card` it computes where its own flags' defaults say."""

    def __init__(self, comfyui: Path, pack: Path, folder: Path, *extra: str, on_card: bool = False) -> None:
        self.folder = folder
        self.modules: list[str] = []  # what is imported before any node ran
        for name in ("custom_nodes", "input", "output", "temp", "user", "models/diffusers"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        link = folder / "custom_nodes" / PACK_NAME
        if not link.exists():
            link.symlink_to(pack, target_is_directory=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log_file = folder / "comfyui.log"
        options = [*([] if on_card else ["--cpu"]), "--port", str(self.port), "--base-directory", str(folder), "--disable-api-nodes"]
        options += ["--database-url", "sqlite:///:memory:", *extra]
        paths = os.pathsep.join(filter(None, [str(_stubs(folder)), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(comfyui / "main.py"), *options], stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=folder
            )

    @property
    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def wait_until_up(self) -> None:
        until(self._answers, START_LIMIT, lambda: f"ComfyUI did not start:\n{self.log[-4000:]}")

    def _answers(self) -> bool:
        assert self.process.poll() is None, f"ComfyUI ended with {self.process.returncode}:\n{self.log[-4000:]}"
        try:
            return self.get("/system_stats")[0] == 200
        except OSError:
            return False

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def get(self, path: str) -> tuple[int, Any]:
        return self._ask(urllib.request.Request(f"http://127.0.0.1:{self.port}{path}"))

    def post(self, path: str, data: object) -> tuple[int, Any]:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        headers = {"Content-Type": "application/json"}
        return self._ask(urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, headers, method="POST"))

    def _ask(self, request: urllib.request.Request) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, body = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, body = error.code, error.read()
        try:
            return status, json.loads(body)
        except ValueError:
            return status, body

    def client(self) -> Client:
        return Client(self)


class Client:
    """A browser's part: a websocket and the prompts it queues."""

    def __init__(self, server: ComfyServer) -> None:
        self.server, self.id, self.messages = server, uuid.uuid4().hex, list[dict[str, Any]]()
        self._texts: list[tuple[str, str]] = []  # nodes and lines of text
        self._socket = websocket.create_connection(f"ws://127.0.0.1:{server.port}/ws?clientId={self.id}", timeout=5)

    def close(self) -> None:
        self._socket.close()

    def queue(self, graph: dict[str, Any], workflow: dict[str, Any] | None = None) -> str:
        extra = {"extra_pnginfo": {"workflow": workflow}} if workflow else {}
        status, answer = self.server.post("/prompt", {"prompt": graph, "client_id": self.id, "extra_data": extra})
        assert status == 200, answer
        return answer["prompt_id"]

    def run(self, graph: dict[str, Any], limit: float = 180.0) -> dict[str, Any]:
        """Queues a graph and returns its history entry once it is done."""
        return self.finish(self.queue(graph), limit)

    def finish(self, prompt: str, limit: float = 180.0) -> dict[str, Any]:
        until(lambda: self.server.get(f"/history/{prompt}")[1], limit, lambda: f"no end in sight:\n{self.server.log[-4000:]}")
        while self.read():
            pass
        return self.server.get(f"/history/{prompt}")[1][prompt]

    def read(self, seconds: float = 0.2) -> bool:
        """Takes in the next message; False if none comes in time."""
        self._socket.settimeout(seconds)
        try:
            message = self._socket.recv()
        except websocket.WebSocketTimeoutException:
            return False
        if isinstance(message, str):
            self.messages.append(json.loads(message))
        elif int.from_bytes(message[:4], "big") == TEXT:
            end = 8 + int.from_bytes(message[4:8], "big")
            self._texts.append((message[8:end].decode(), message[end:].decode()))
        return True

    def texts(self, node: str) -> list[str]:
        """The lines of progress text on a node that have been taken in."""
        return [text for name, text in self._texts if name == node]

    def events(self, prompt: str) -> list[dict[str, Any]]:
        """Our events of a prompt that have been taken in."""
        sent = [message["data"] for message in self.messages if message["type"] == "video_trainer.event"]
        return [message["event"] for message in sent if message["prompt"] == prompt]

    def wait_for(self, prompt: str, type: str, limit: float = 180.0) -> dict[str, Any]:
        """The first event of a type, as soon as it arrives."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            heard = self.read(1.0)
            found = [event for event in self.events(prompt) if event["type"] == type]
            if found:
                return found[0]
            assert heard or not self.server.get(f"/history/{prompt}")[1], f"ended without {type}:\n{self.server.log[-4000:]}"
        raise AssertionError(f"no {type}:\n{self.server.log[-4000:]}")


def until(true: Callable[[], Any], limit: float, why: Callable[[], str]) -> None:
    end = time.monotonic() + limit
    while not true():
        assert time.monotonic() < end, why()
        time.sleep(0.1)


def errors(history: dict[str, Any]) -> list[dict[str, Any]]:
    """What went wrong, by ComfyUI's own record."""
    return [message for name, message in history["status"]["messages"] if name == "execution_error"]


def _stubs(folder: Path) -> Path:
    stubs = folder / "stubs"
    stubs.mkdir(exist_ok=True)
    if importlib.util.find_spec("torchaudio") is None:
        (stubs / "torchaudio").mkdir(exist_ok=True)
        for name, text in TORCHAUDIO.items():
            (stubs / "torchaudio" / name).write_text(text, encoding="utf-8")
    return stubs
