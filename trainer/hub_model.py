"""Downloading a diffusers model from the hub: only what is needed, its size told first, in pieces that a cancel or a fault keeps."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import UserError, fail
from .events import Phase

if TYPE_CHECKING:
    from .events import EventLog

PIECE = 32 << 20  # bytes asked for at once: what a cancel waits for
GB, MB = 10**9, 10**6
INDEX = "model_index.json"
SMALL = (".json", ".txt", ".model", ".jinja")
PLAIN = re.compile(r"(diffusion_pytorch_model|model)(-\d+-of-\d+)?\.safetensors")  # weights of no other precision


class ModelDownload:
    """One model on its way into `target`, which appears when all of it is there."""

    def __init__(self, name: str, target: Path, where: str, log: EventLog | None) -> None:
        self._name, self._target, self._where, self._log = name, target, where, log

    def run(self) -> None:
        """Downloads what is missing; raises UserError naming what was found and what to do, or Interrupted."""
        try:
            self._run()
        except UserError:
            raise
        except download_errors() as error:
            raise not_downloaded(self._where, self._name, error) from None

    def _run(self) -> None:
        from huggingface_hub import HfApi

        found = HfApi().model_info(self._name, files_metadata=True)
        sizes = {file.rfilename: file.size or 0 for file in found.siblings or ()}
        if INDEX not in sizes:
            cure = "Give a repository in diffusers' layout, or download single files and use Load Model Files for Training."
            raise fail(self._where, f"'{self._name}' holds no {INDEX}.", cure)
        unfinished = self._target.with_name(f".{self._target.name}.{(found.sha or 'main')[:12]}.part")
        revision = found.sha or "main"
        self._fetch(revision, INDEX, sizes[INDEX], unfinished, lambda _: None)
        index = json.loads((unfinished / INDEX).read_text(encoding="utf-8"))
        wanted = {file: sizes[file] for file in needed_files(sizes, index)}
        here = {file: _size(unfinished / file) for file in wanted}
        left = sum(wanted.values()) - sum(here.values())
        self._tell(wanted, left)
        total, done = sum(wanted.values()), sum(here.values())
        report = self._log.progress(max(total // MB, 1), "MB downloaded") if self._log else None

        def add(count: int) -> None:
            nonlocal done
            done += count
            if report:
                report(done // MB)

        for file, size in wanted.items():
            self._fetch(revision, file, size, unfinished, add)
        os.replace(unfinished, self._target)
        for older in self._target.parent.glob(f".{escape(self._target.name)}.*.part"):
            shutil.rmtree(older, ignore_errors=True)

    def _tell(self, wanted: Mapping[str, int], left: int) -> None:
        """Says how much it is; raises UserError if the disk has less."""
        place = next(folder for folder in self._target.parents if folder.is_dir())
        free = shutil.disk_usage(place).free
        if left > free:
            found = f"'{self._name}' needs {left / GB:.1f} GB more, and {free / GB:.1f} GB are free on the disk of '{place}'."
            raise fail(self._where, found, "Free space there, or download the model elsewhere and give its folder.")
        if self._log:
            whole = sum(wanted.values())
            rest = f", {left / GB:.1f} GB of them still to come" if whole - left > wanted[INDEX] else ""
            self._log.emit(Phase("load", f"Downloading '{self._name}': {whole / GB:.1f} GB in {len(wanted)} files{rest}"))

    def _fetch(self, revision: str, file: str, size: int, folder: Path, add: Any) -> None:
        """Appends what is missing of one file, a piece at a time."""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_backoff

        path, url = folder / file, hf_hub_url(self._name, file, revision=revision)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        while (place := _size(path)) < size:
            last = min(place + PIECE, size) - 1
            response = http_backoff("GET", url, headers={**build_hf_headers(), "Range": f"bytes={place}-{last}"})
            hf_raise_for_status(response)
            data = response.content
            if response.status_code == 200:  # the whole file, whatever was asked for
                data = data[place : last + 1]
            if len(data) != last + 1 - place:
                raise OSError(f"'{file}' came with {len(data)} bytes instead of {last + 1 - place}")
            with path.open("ab") as out:
                out.write(data)
            add(len(data))


def download_errors() -> tuple[type[Exception], ...]:
    """What a download may end in: the hub's own errors, the disk's, and those of the library that asks.

    huggingface_hub asks through httpx since its version 1, whose errors are of no other kind; those of requests before are OSErrors.
    """
    from huggingface_hub.errors import HfHubHTTPError

    with suppress(ImportError):
        import httpx

        return HfHubHTTPError, OSError, ValueError, httpx.HTTPError
    return HfHubHTTPError, OSError, ValueError


def not_downloaded(where: str, name: str, error: Exception) -> UserError:
    """The error of a hub id that could not be downloaded, to be raised by the caller; nothing is said but its first line."""
    reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    cure = "Check the name and the connection; running again goes on where it stopped."
    return fail(where, f"'{name}' could not be downloaded: {reason}.", cure)


def needed_files(names: Mapping[str, int], index: Mapping[str, Any]) -> list[str]:
    """The index, and of each part that it names the small files and the weights of full precision, or all safetensors if there are none."""
    parts = [part for part, kind in index.items() if re.fullmatch(r"\w+", part) and isinstance(kind, list) and kind and kind[0]]
    wanted = [INDEX]
    for part in parts:
        files = [name for name in names if name.rpartition("/")[0] == part]
        weights = [name for name in files if name.endswith(".safetensors")]
        plain = [name for name in weights if PLAIN.fullmatch(name.rpartition("/")[2])]
        wanted += [name for name in files if name.endswith(SMALL)] + (plain or weights)
    return wanted


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
