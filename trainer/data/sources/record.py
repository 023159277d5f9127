"""The one record all dataset formats give, and why a clip cannot be used."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ...errors import Problem

if TYPE_CHECKING:
    from ...caption_settings import CaptionEdit

CaptionOrigin = Literal["file", "setting", "none"]


@dataclass(frozen=True)
class ClipRecord:
    """A clip and its captions as they were found; `name` is its path inside the source, no captions means uncaptioned.

    `repeats` is the times it is seen per epoch, `weight` that of its loss, `edits` what its source does to captions,
    `sidecar` the file that holds its caption and nothing else, or would: None where captions come from lists and tables.
    """

    path: Path
    name: str
    captions: tuple[str, ...] = ()
    origin: CaptionOrigin = "none"
    repeats: int = 1
    weight: float = 1.0
    edits: tuple[CaptionEdit, ...] = ()
    sidecar: Path | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Listed:
    """A clip as a format gives it: what is told by a file says where in `told`, such as "line 3 of /data/videos.txt".

    `fault` says why it cannot be used, empty if nothing is known against it.
    """

    path: Path
    name: str
    captions: tuple[str, ...] = ()
    told: str = ""
    fault: str = ""
    sidecar: Path | None = None


@dataclass
class Scan:
    """What the sources hold: clips in stable order, those left out and why, files seen per extension, things to tell the user.

    `memories` are the files of the cache that hold which members the scanned archives have.
    """

    clips: list[ClipRecord] = field(default_factory=list)
    skipped: list[tuple[ClipRecord, str]] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    notices: list[Problem] = field(default_factory=list)
    memories: list[Path] = field(default_factory=list)


class UnusableClip(Exception):
    """This one clip cannot be trained on; the text says why, `cure` what to do, and training goes on with the others."""

    def __init__(self, why: str, cure: str = "Repair, convert or replace the file, or take it out of the dataset.") -> None:
        super().__init__(why)
        self.cure = cure


class ChangedFile(UnusableClip):
    """A file is another than it was when reading it began."""

    def __init__(self) -> None:
        super().__init__("was changed while it was read", "Run again once nothing writes to it.")
