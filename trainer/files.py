"""Files: each is written complete or not at all, and only regular ones are read."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Literal

from .errors import UserError, fail

_OTHERS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip


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


def kind_of(path: Path | os.DirEntry[str]) -> Literal["file", "folder", ""]:
    """What lies at a path, wherever links lead; "" for nothing or a pipe, device or socket, as where the name is none for a path."""
    try:
        return "file" if path.is_file() else "folder" if path.is_dir() else ""
    except (OSError, ValueError):
        return ""


def regular(path: Path) -> os.stat_result:
    """The state of a regular file, wherever links lead; raises OSError, with the reason as `strerror`, if there is none.

    Nothing is opened for it: opening a pipe waits for a writer, and a device may never end.
    """
    try:
        state = path.stat()
    except ValueError as error:
        raise OSError(errno.EINVAL, "no file can have this name") from error
    if not stat.S_ISREG(state.st_mode):
        kind = _OTHERS.get(stat.S_IFMT(state.st_mode), "something else")
        raise OSError(errno.EINVAL, f"is {kind}, not a file", str(path))
    return state


def no_file(path: Path) -> str:
    """Why no regular file can be read at a path; empty if one is there."""
    try:
        regular(path)
    except FileNotFoundError:
        return "is a link that leads to no file" if path.is_symlink() else "there is no such file"
    except OSError as error:
        return reason(error)
    return ""


def read_file(path: Path) -> bytes:
    """The bytes of a regular file; raises OSError for anything else."""
    regular(path)
    return path.read_bytes()


def reason(error: BaseException) -> str:
    """What an error says, of the system's without number and path."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def not_written(place: Path, error: OSError, full: str, cure: str = "Check the folder's permissions.") -> UserError:
    """What to tell when nothing could be written at a place: `full` is the cure where the disk is full, `cure` else."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return fail(str(place), "the disk is full.", full)
    return fail(str(place), f"cannot be written: {reason(error)}.", cure)


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
