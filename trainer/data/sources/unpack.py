"""Members of archives as files of their own, since decoders want paths.

A member is kept in the cache under the hash of its bytes: once however many archives hold it, and a changed archive
unpacks only what is new in it. What was unpacked takes as much room as the clips themselves; the folder may be
deleted at any time, the next run unpacks again what it needs.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from ...files import not_written
from ..content import settled, signature
from ..kept import keep, kept
from .record import UnusableClip

BROKEN = (  # what tarfile raises of a damaged tar
    tarfile.TarError, EOFError, zlib.error, OSError, ValueError, LookupError, ArithmeticError, RecursionError,
)  # fmt: skip
_CHUNK = 1 << 20  # bytes


class Archive:
    """The unpacked members of one archive; what each is called is remembered as long as the archive stays as it is.

    Without a folder nothing is unpacked: a member's path is then the archive's own.
    """

    def __init__(self, path: Path, folder: Path | None, check: Callable[[], None]) -> None:
        self.path, self._folder, self._check, self._state = path, folder, check, signature(path)
        memory = kept(self.memory) or {}
        self._names: dict[str, str] = memory["members"] if memory.get("state") == self._state else {}

    @property
    def memory(self) -> Path:
        """The file that remembers what the members are called."""
        name = hashlib.blake2b(str(self.path).encode(errors="surrogatepass"), digest_size=20).hexdigest()
        return (self._folder or Path()) / "archives" / f"{name}.json"

    def known(self, member: str) -> Path | None:
        """Where a member lies if its bytes need not be read."""
        if self._folder is None:
            return self.path
        name = self._names.get(member)
        path = self._folder / name[:2] / name if name else None
        return path if path is not None and path.is_file() else None

    def unpack(self, member: str, suffix: str, content: IO[bytes]) -> Path:
        """Writes a member's bytes under their hash.

        Raises UnusableClip if they cannot be read, UserError if the disk is full or the folder cannot be written.
        """
        assert self._folder is not None  # without it every member is known
        hasher = hashlib.blake2b(digest_size=20)
        beside = self._folder / f".{self.memory.stem}.{os.getpid()}.part"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as file:
                for chunk in _chunks(content, self._check):
                    hasher.update(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            name = hasher.hexdigest() + suffix
            path = self._folder / name[:2] / name
            path.parent.mkdir(exist_ok=True)
            os.replace(beside, path)
        except OSError as error:
            cure = "Free space: clips in archives are unpacked there; or unpack the archive yourself."
            raise not_written(self._folder, error, cure) from error
        finally:
            beside.unlink(missing_ok=True)
        self._names[member] = name
        return path

    def save(self) -> None:
        """Remembers the members, unless the archive changed meanwhile or too shortly before to be sure; it only saves time."""
        with suppress(OSError):
            if self._folder is not None and settled(self._state) and signature(self.path) == self._state:
                keep(self.memory, {"state": self._state, "members": self._names})


def _chunks(content: IO[bytes], check: Callable[[], None]) -> Iterator[bytes]:
    while True:
        check()
        try:
            chunk = content.read(_CHUNK)
        except BROKEN as error:
            raise UnusableClip(f"its archive is damaged ({error})") from error
        if not chunk:
            return
        yield chunk
