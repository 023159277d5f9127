"""When the files of the cache were last used, and who works from it now: what pruning must know."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path

from ..files import remove_leftovers
from .kept import keep, kept


class UseMarks:
    """The day on which each file of the cache was last used; kept as JSON, a damaged file counts as absent.

    It is a file of its own because a touched entry would have to be checksummed again. Two processes that save at the
    same moment may lose marks of one of them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder.absolute(), folder / "used.json"
        self._today = set[str]()

    def mark(self, path: Path) -> None:
        """Notes that a file of the cache is used today."""
        self._today.add(path.absolute().relative_to(self._folder).as_posix())

    def days(self) -> dict[str, date]:
        """The days that were kept, by path below the cache."""
        return {name: date.fromisoformat(day) for name, day in (kept(self._file) or {}).items()}

    def save(self) -> None:
        """Adds what was marked to what was kept before; a full disk is no error."""
        if self._today:
            before, today = self.days(), date.today()
            self._write(before, before | dict.fromkeys(self._today, today))
            self._today.clear()

    def tidy(self) -> None:
        """Drops the marks of files that are gone."""
        before = self.days()
        self._write(before, {name: day for name, day in before.items() if (self._folder / name).is_file()})

    def _write(self, before: dict[str, date], days: dict[str, date]) -> None:
        with suppress(OSError):
            remove_leftovers(self._file)
        if days != before:
            keep(self._file, {name: day.isoformat() for name, day in days.items()})


@contextmanager
def working_from(cache: Path) -> Iterator[None]:
    """Tells `users` that this process works from the cache for as long as the block lasts, or until it is killed."""
    from filelock import FileLock

    file = cache / "users" / f"{date.today().isoformat()}.{os.getpid()}.{uuid.uuid4().hex[:8]}.lock"
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(file):
            yield
    finally:
        with suppress(OSError):
            file.unlink()


def users(cache: Path) -> list[date]:
    """For each of those that work from the cache now, the day on which it began; what was left by killed ones is removed."""
    from filelock import FileLock, Timeout

    began = list[date]()
    for file in sorted((cache / "users").glob("*.lock")):
        with suppress(ValueError, OSError):  # not one of ours, or gone since it was listed
            day = date.fromisoformat(file.name.partition(".")[0])
            try:
                with FileLock(file, timeout=0):
                    pass
            except Timeout:
                began.append(day)
            else:
                if day < date.today():  # today's may be about to be locked
                    file.unlink()
    return began
