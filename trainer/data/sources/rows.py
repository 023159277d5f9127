"""Rows that name clips and captions: which columns, and what is in their cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import UserError
from .context import ScanContext
from .paths import listed_path
from .record import Listed
from .text_file import one_line

VIDEO_COLUMNS = ("file_name", "video", "path", "image")
CAPTION_COLUMNS = ("caption", "text", "prompt")

Row = tuple[str, Mapping[str, Any]]  # its place in the file, such as "line 3", and its cells by column


@dataclass(frozen=True)
class Columns:
    """The columns of a file, among which those of clips and captions are found."""

    names: Sequence[str]
    file: Path
    context: ScanContext

    @classmethod
    def of(cls, rows: Iterable[Row], file: Path, context: ScanContext) -> Columns:
        """Every column that any row has."""
        return cls(list(dict.fromkeys(name for _, row in rows for name in row)), file, context)

    def video(self, wanted: str, usual: Sequence[str], setting: str = "video_column") -> str:
        """The wanted column, else the first usual one; raises UserError naming those there are."""
        found = self._find(wanted, usual, setting)
        if found is None:
            raise self._unknown(setting, f"none of the columns {', '.join(usual)}")
        return found

    def caption(self, wanted: str, usual: Sequence[str]) -> str | None:
        """The wanted column, else the first usual one; None, with a notice, if none is wanted and none usual is there."""
        found = self._find(wanted, usual, "caption_column")
        if found is None:
            lacks = f"has none of the columns {', '.join(usual)}; its columns are {self._there}."
            self.context.notice(self.file, lacks, "Its clips count as uncaptioned.")
        return found

    def _find(self, wanted: str, usual: Sequence[str], setting: str) -> str | None:
        wanted = wanted.strip()
        if wanted and wanted not in self.names:
            raise self._unknown(setting, f"no column '{wanted}'")
        return wanted or next((name for name in usual if name in self.names), None)

    @property
    def _there(self) -> str:
        return ", ".join(f"'{name}'" for name in self.names) or "none"

    def _unknown(self, setting: str, what: str) -> UserError:
        return self.context.fail(setting, f"'{self.file}' has {what}; its columns are {self._there}.", "Give the name of one of them.")


def listed_rows(rows: Iterable[Row], video: str, caption: str | None, file: Path, roots: Sequence[Path]) -> Iterator[Listed]:
    """The clip of each row, relative to the first of `roots` that has it."""
    for place, row in rows:
        clip, told = row.get(video), f"{place} of {file}"
        path, fault = listed_path(clip, *roots) if isinstance(clip, str) else (file, "no clip is named")
        name = clip.strip() if isinstance(clip, str) and clip.strip() else f"{file.name} {place}"
        captions, odd = cell_captions(row.get(caption) if caption else None)
        yield Listed(path, name, captions, told, fault or odd)


def cell_captions(cell: Any) -> tuple[tuple[str, ...], str]:
    """The captions in a cell, text or a list of texts, blank ones left out; and what is wrong with it, if anything."""
    values = cell if isinstance(cell, (list, tuple)) else [cell]
    values = [value for value in values if value is not None and value == value]  # a table program may write nothing as NaN
    if not all(isinstance(value, (str, int, float)) for value in values):
        return (), f"its caption is not text but {type(cell).__name__}"
    return tuple(text for value in values if (text := one_line(str(value)))), ""
