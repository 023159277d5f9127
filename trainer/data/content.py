"""Hashes of file contents, remembered by the file's stat so that unchanged files are not read again."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ..files import remove_leftovers, write_bytes

_CHUNK = 1 << 24  # bytes
_RACY_NS = 2_000_000_000  # a file changed this shortly before being read may change again within its clock's tick


def nothing() -> None:
    """A check that never stops."""


class ContentIndex:
    """Digests of files by path, size, modification and change time and inode; kept as JSON, remade if unreadable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, list[int | str]] = {}
        with suppress(OSError, ValueError):
            known = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(known, dict):
                self._known = {name: entry for name, entry in known.items() if isinstance(entry, list) and len(entry) == 5}
        self._changed = False

    def known(self, path: Path) -> str | None:
        """The hash of the file as it is now, if it is remembered."""
        known = self._known.get(str(path.absolute()))
        return str(known[-1]) if known is not None and known[:-1] == signature(path) else None

    def digest(self, path: Path, check: Callable[[], None] = nothing) -> str:
        """Hash of the file's bytes, hex; `check` is called between chunks. Raises OSError if it cannot be read."""
        name, stat = str(path.absolute()), signature(path)
        known = self._known.get(name)
        if known is not None and known[:-1] == stat:
            return str(known[-1])
        digest = file_digest(path, check)
        self.remember(path, stat, digest)
        return digest

    def is_known(self, path: Path, value: str) -> bool:
        """Whether `value` was remembered for the file as it is now."""
        return self._known.get(str(path.absolute())) == [*signature(path), value]

    def remember(self, path: Path, stat: list[int], value: str) -> None:
        """Keeps a value for the file in that state, unless it changed too shortly before to be sure."""
        if settled(stat):
            self._known[str(path.absolute())] = [*stat, value]
            self._changed = True

    def forget(self, paths: Iterable[Path]) -> None:
        """Drops what is known of files."""
        for path in paths:
            self._changed = self._known.pop(str(path.absolute()), None) is not None or self._changed

    def save(self) -> None:
        """Writes the index beside its place and renames it, if anything is new; it only saves time, so a full disk is no error."""
        if self._changed:
            with suppress(OSError):
                remove_leftovers(self.path)
                write_bytes(self.path, json.dumps(self._known).encode())
            self._changed = False


def signature(path: Path) -> list[int]:
    """Size, modification and change time in ns, inode: what changes when a file does."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def settled(stat: list[int]) -> bool:
    """Whether a file of this signature changed so long ago that a later change would show in it."""
    return time.time_ns() - max(stat[1], stat[2]) > _RACY_NS


def file_digest(path: Path, check: Callable[[], None] = nothing) -> str:
    """Hash of a file's bytes, hex."""
    hasher = hashlib.blake2b(digest_size=20)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
            check()
    return hasher.hexdigest()


def key_of(**parts: object) -> str:
    """Hash of named JSON values, hex; the same values give the same key everywhere."""
    return hashlib.blake2b(json.dumps(parts, sort_keys=True, ensure_ascii=True).encode(), digest_size=20).hexdigest()


def component_identity(index: ContentIndex, files: Mapping[str, Path], check: Callable[[], None] = nothing) -> str:
    """Hash over the names and contents of the files of a model's part, as `ModelFiles.paths` gives them."""
    return key_of(**{name: index.digest(path, check) for name, path in files.items()})


def known_identity(index: ContentIndex, files: Mapping[str, Path]) -> str:
    """The component's identity if the hashes of all its files are remembered, else empty; reads none of them."""
    digests = {name: index.known(path) for name, path in files.items()}
    return "" if None in digests.values() else key_of(**digests)
