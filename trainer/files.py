"""Writing files so that each is complete or absent."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Literal

from .errors import fail


@contextmanager
def complete_or_absent(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; flushed to the disk and renamed into place when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = _beside(path)
    try:
        yield beside
        with beside.open("r+b") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def kind_of(path: Path) -> Literal["file", "folder", ""]:
    """What lies at a path; "" if nothing does, as where the name is too long for a path."""
    try:
        return "file" if path.is_file() else "folder" if path.is_dir() else ""
    except OSError:
        return ""


def lies_in(path: Path, roots: Sequence[Path]) -> bool:
    """Whether a path is one of the folders or inside one, wherever links lead."""
    real = path.resolve()
    return any(root.resolve() in (real, *real.parents) for root in roots)


def check_can_write(path: Path, where: str) -> None:
    """Makes the file's folder and tries to write there; raises UserError naming the setting `where` if that is not possible."""
    try:
        if path.is_dir():
            raise IsADirectoryError("it is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        _beside(path).touch()
        _beside(path).unlink()
    except (OSError, ValueError) as error:
        cure = "Give the path of a file, in a folder that you may write to."
        raise fail(where, f"'{path}' cannot be written: {error}.", cure) from None


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def remove_leftovers(path: Path) -> None:
    """Deletes what processes that were killed while writing `path` left beside it; what a living process writes stays."""
    import psutil

    for beside in path.parent.glob(f".{escape(path.name)}.*.part"):
        process = beside.name.split(".")[-2]
        if process.isdecimal() and not psutil.pid_exists(int(process)):
            beside.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a file that is complete or absent."""
    with complete_or_absent(path) as beside:
        beside.write_bytes(data)


def write_json(path: Path, data: object) -> None:
    """Writes indented JSON; names that are not text in any encoding survive as escapes."""
    with complete_or_absent(path) as beside:
        beside.write_text(json.dumps(data, indent=2), encoding="utf-8")
