"""The one record all dataset formats give, and why a clip cannot be used."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ...errors import Problem

CaptionOrigin = Literal["file", "setting", "none"]


@dataclass(frozen=True)
class ClipRecord:
    """A clip and its caption; `name` is its path inside the source, `repeats` the times it is seen per epoch."""

    path: Path
    name: str
    caption: str = ""
    origin: CaptionOrigin = "none"
    repeats: int = 1


@dataclass
class Scan:
    """What the sources hold: clips in stable order, files seen per extension, things to tell the user."""

    clips: list[ClipRecord] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    notices: list[Problem] = field(default_factory=list)


class UnusableClip(Exception):
    """This one clip cannot be trained on; the text says why, and training goes on with the others."""
