"""Hashes of file contents, remembered by the file's stat so that unchanged files are not read again."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError, fail
from ..files import regular, remove_leftovers
from .kept import keep, kept
from .sources.record import ChangedFile, UnusableClip

_CHUNK = 1 << 24  # bytes
_RACY_NS = 2_000_000_000  # a file changed this shortly before being read may change again within its clock's tick


def nothing() -> None:
    """A check that never stops."""


@dataclass(frozen=True)
class Content:
    """What a file held when its bytes were hashed: their hash, hex, and the file's signature then.

    `settled` says whether any later change shows in the signature.
    """

    digest: str
    state: tuple[int, ...]
    settled: bool

    @contextmanager
    def steady(self, path: Path, check: Callable[[], None] = nothing) -> Iterator[None]:
        """What the block reads from the file is of this content: raises ChangedFile, whatever else fails, if the file has changed."""
        try:
            yield
        except (UnusableClip, OSError) as error:
            if not self.is_of(path, check):
                raise ChangedFile from error
            raise
        if not self.is_of(path, check):
            raise ChangedFile

    def is_of(self, path: Path, check: Callable[[], None] = nothing) -> bool:
        """Whether the file has held these bytes all the time."""
        try:
            return tuple(signature(path)) == self.state and (self.settled or file_digest(path, check) == self.digest)
        except OSError:
            return False


class ContentIndex:
    """Digests of files by path, size, modification and change time and inode; kept as JSON, remade if damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, list[int | str]] = kept(path) or {}
        self._changed = False

    def known(self, path: Path) -> str | None:
        """The hash of the file as it is now, if it is remembered."""
        known = self._known.get(str(path.absolute()))
        return str(known[-1]) if known is not None and known[:-1] == signature(path) else None

    def content(self, path: Path, check: Callable[[], None] = nothing) -> Content:
        """What the file holds; `check` is called between chunks.

        Raises OSError if it cannot be read, ChangedFile if it is another when it was read to its end.
        """
        stat = signature(path)
        known = self._known.get(str(path.absolute()))
        if known is not None and known[:-1] == stat:
            return Content(str(known[-1]), tuple(stat), True)
        digest = file_digest(path, check)
        if signature(path) != stat:
            raise ChangedFile
        self.remember(path, stat, digest)
        return Content(digest, tuple(stat), settled(stat))

    def digest(self, path: Path, check: Callable[[], None] = nothing) -> str:
        """Hash of the file's bytes, hex; raises as `content` does."""
        return self.content(path, check).digest

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
            keep(self.path, self._known)
            self._changed = False


def signature(path: Path) -> list[int]:
    """Size, modification and change time in ns, inode of a regular file: what changes when it does. Raises OSError if there is none."""
    stat = regular(path)
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
    """Hash over the names and contents of the files of a model's part, as `ModelFiles.paths` gives them.

    Raises UserError for a file that changes meanwhile.
    """
    digests = dict[str, str]()
    for name, path in files.items():
        try:
            digests[name] = index.digest(path, check)
        except ChangedFile as error:
            raise changed_model(path) from error
    return key_of(**digests)


def changed_model(place: object) -> UserError:
    """What to tell when a model's files change while they are read."""
    return fail(str(place), "was changed while the model was read.", "Run again once nothing writes to it.")


def known_identity(index: ContentIndex, files: Mapping[str, Path]) -> str:
    """The component's identity if the hashes of all its files are remembered, else empty; reads none of them."""
    digests = {name: index.known(path) for name, path in files.items()}
    return "" if None in digests.values() else key_of(**digests)
