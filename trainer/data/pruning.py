"""survey and prune: what lies in the cache, and taking out of it what has not been used for long."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

from ..errors import fail
from .cache_use import UseMarks, users
from .content import ContentIndex, nothing
from .known_probes import KnownProbes

_KEY = r"([0-9a-f]{2})/\1[0-9a-f]{38}"  # a file named by its hash, in a folder named by the first two digits
KINDS = {  # what is told of a kind of files -> their paths below the cache; nothing else there is ever removed
    "encoded clips": rf"clips/{_KEY}\.safetensors",
    "encoded captions": rf"texts/{_KEY}\.safetensors",
    "scene cuts": r"scenes/[0-9a-f]{40}\.json",
    "clips of archives": rf"unpacked/{_KEY}(\.[^/]*)?",
    "lists of archives": r"unpacked/archives/[0-9a-f]{40}\.json",
    "lists of Parquet files": rf"parquet/{_KEY}\.json",
    "half-written files": r"(clips|texts|scenes|unpacked|parquet)/(\w+/)?\.[0-9a-f]{40}(\.\w+)?\.(?P<process>\d+)\.part",
    "downloaded datasets": r"downloads/.+",
}
ALL = "together"
KEPT = ("downloaded datasets",)  # cannot be made again from what is on this machine


@dataclass(frozen=True)
class CacheFile:
    """A file of the cache: its size in bytes, and the day on which it was last used or written."""

    path: Path
    kind: str
    size: int
    used: date


@dataclass
class CacheReport:
    """What lies in the cache, what of it was not used for so many days, and whether that was removed.

    `failed` names the files that could not be removed, with the reason; they are not in `unused` then.
    """

    folder: Path
    unused_for: int
    files: list[CacheFile]
    unused: list[CacheFile]
    removed: bool = False
    failed: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """A table of kinds with number and size of their files, and a line on what was or can be removed."""
        if not self.files:
            return [f"cache: {self.folder} is empty"]
        there, unused = _tallies(self.files), _tallies(self.unused)
        idle = f"unused for {_count(self.unused_for, 'day')}" if self.unused_for else "can be removed"
        rows = [("", "files", "size", "removed" if self.removed else idle)]
        for kind in (kind for kind in [*KINDS, ALL] if kind in there):
            count, size = there[kind]
            rows.append((kind, f"{count:,}", _size(size), "stays" if kind in KEPT else _told(*unused.get(kind, (0, 0)))))
        told = _told(*unused.get(ALL, (0, 0)))
        closing = f"removed: {told}; what is needed again is made again" if self.removed else f"{idle}: {told}"
        return [f"cache: {self.folder}", *_aligned(rows), closing, *(f"not removed: {line}" for line in self.failed)]


def survey(cache: Path, unused_for: int) -> CacheReport:
    """What lies in the cache, and what of it no dataset used for at least so many days; nothing is changed."""
    files = list(_files(cache))
    return CacheReport(cache, unused_for, files, [file for file in files if _is_unused(file, _limit(unused_for))])


def prune(cache: Path, unused_for: int, check: Callable[[], None] = nothing) -> CacheReport:
    """Removes what no dataset used for at least so many days, 0 for everything; `check` is called between files.

    What was found by probing clips, which only saves time, goes by the same rule.

    What a run or an export that is going on may read stays, for however long it has been going on; raises UserError if
    everything is to go then. A preview, or a run of a version older than this, is not known of: what it still needs is
    made again, at worst after an error that says so. Files of no known kind stay.
    """
    began = users(cache)
    if began and not unused_for:
        cure = "Wait for its end, or remove what was unused for a day or more."
        raise fail(str(cache), "is in use: a training or an export works from it.", cure)
    report = survey(cache, unused_for)
    first = min(began, default=date.max)
    report.unused = [file for file in report.unused if file.used < first]
    report.removed = True
    gone = list[CacheFile]()
    try:
        for file in report.unused:
            check()
            try:
                file.path.unlink(missing_ok=True)
                gone.append(file)
            except OSError as error:
                report.failed.append(f"{file.path}: {error.strerror or error}")
    finally:
        report.unused = gone
        index = ContentIndex(cache / "index.json")
        index.forget(file.path for file in gone)
        index.save()
        UseMarks(cache).tidy()
        probes = KnownProbes(cache)
        probes.forget(_limit(unused_for))
        probes.save()
    return report


def _limit(unused_for: int) -> date:
    """The last day of use of what counts as unused for so many days."""
    return date.today() - timedelta(unused_for) if unused_for else date.max


def _files(cache: Path) -> Iterator[CacheFile]:
    """All files of known kinds; links are none, nor is what a living process writes."""
    import psutil

    days = UseMarks(cache).days()
    patterns = {kind: re.compile(pattern) for kind, pattern in KINDS.items()}
    for top in sorted({pattern.partition("/")[0] for pattern in KINDS.values() if pattern[0] != "("}):
        for folder, _, names in os.walk(cache / top):
            for name in sorted(names):
                path = Path(folder, name)
                below = path.relative_to(cache).as_posix()
                kind, match = next(((kind, found) for kind, pattern in patterns.items() if (found := pattern.fullmatch(below))), ("", None))
                if match is None or (kind == "half-written files" and psutil.pid_exists(int(match["process"]))):
                    continue
                try:
                    state = path.lstat()
                except OSError:  # gone since it was listed
                    continue
                if stat.S_ISREG(state.st_mode):
                    yield CacheFile(path, kind, state.st_size, max(days.get(below, date.min), _day(state.st_mtime)))


def _day(seconds: float) -> date:
    try:
        return date.fromtimestamp(seconds)
    except (OverflowError, OSError, ValueError):
        return date.min


def _is_unused(file: CacheFile, limit: date) -> bool:
    return file.used <= limit and file.kind not in KEPT


def _tallies(files: Sequence[CacheFile]) -> dict[str, tuple[int, int]]:
    """Number and bytes of the files of each kind, and of all."""
    counts, sizes = Counter[str](), Counter[str]()
    for file in files:
        for kind in (file.kind, ALL):
            counts[kind] += 1
            sizes[kind] += file.size
    return {kind: (count, sizes[kind]) for kind, count in counts.items()}


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows of a table, its first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]) for row in rows
    ]


def _told(count: int, size: int) -> str:
    return f"{_count(count, 'file')}, {_size(size)}" if count else "none"


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.{0 if unit == 'bytes' else 1}f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
