"""Writing files so that each is complete or absent."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path


@contextmanager
def complete_or_absent(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; flushed to the disk and renamed into place when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield beside
        with beside.open("r+b") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


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
