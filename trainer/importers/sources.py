"""Where clips come from. All formats add their sources of clips here, so that one place knows what the job can hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic.fields import FieldInfo

from ..caption_settings import CaptionEdit
from ..files import kind_of
from ..hub import HUB_ID
from ..source_files import CAPTION_LISTS, TABLES, VIDEO_LISTS, is_rows, is_tar
from ..source_settings import SOURCES, PairedFolders
from .result import Entry, Report
from .rules import as_number

SourceKind = Literal["folder", "paired", "list", "table", "caption_json", "hub", "webdataset", "parquet"]  # the job's own names
EDIT = "caption_edits."  # begins the parts of a source's caption edit
IMAGE_LISTS = ("images.txt", "image.txt")  # other trainers' VIDEO_LISTS of images

DESCRIBED: dict[SourceKind, str] = {
    "folder": "a folder of clips with a .txt beside each",
    "paired": "a folder of clips and one of captions",
    "list": "a list of clips with a list of captions",
    "table": "a table of clips and captions",
    "caption_json": "a videos2caption.json",
    "hub": "a Hugging Face dataset",
    "webdataset": "tars of clips and captions",
    "parquet": "Parquet of encoded clips",
}


def add_source(report: Report, kind: SourceKind, given: Mapping[str, Entry | None], fixed: Mapping[str, Any] | None = None) -> None:
    """Adds a source of clips to the job and gives the settings that made it their lines.

    `given` are foreign settings by part of the source: "path" is its place, "repeats" and the like its settings of that
    name, "caption_edits.prefix" and the like its caption edit's; None and empty ones are skipped. `fixed` is what the
    other trainer does without a setting.
    """
    sources: list[dict[str, Any]] = report.value("dataset.sources") or []
    place, source, edit = f"dataset.sources.{len(sources)}", dict[str, Any](kind=kind), dict[str, Any]()
    for part, value in (fixed or {}).items():
        _put(kind, part, value, source, edit)
    for part, entry in given.items():
        if entry is None or entry.value in (None, ""):
            continue
        name = _put(kind, part, entry.value, source, edit)
        if name:
            value = edit[name.rpartition(".")[2]] if name.startswith(EDIT) else source[name]
            report.mapped(entry, f"{place}.{name}", value)
        else:
            report.ignored(entry, f"{DESCRIBED[kind]} needs no {part.removeprefix(EDIT)}")
    report.put("dataset.sources", [*sources, source | ({"caption_edits": [edit]} if edit else {})])


def _put(kind: SourceKind, part: str, value: Any, source: dict[str, Any], edit: dict[str, Any]) -> str:
    """Sets one part of a source; its name there, or nothing if sources of this kind have no such part."""
    fields = SOURCES[kind].model_fields
    if part.startswith(EDIT):
        name = part.removeprefix(EDIT)
        if "caption_edits" not in fields:
            return ""
        edit[name] = _typed(CaptionEdit.model_fields[name], value)
        return f"{EDIT}0.{name}"
    name = SOURCES[kind].LOCATION if part == "path" else "caption_key" if (kind, part) == ("webdataset", "caption_column") else part
    if name not in fields:
        return ""
    source[name] = _typed(fields[name], value)
    return name


def _typed(field: FieldInfo, value: Any) -> Any:
    return str(value) if field.annotation is str else as_number(value)


def note_missing(report: Report) -> None:
    """A note if no source of clips could be taken over."""
    if not report.value("dataset.sources"):
        report.notes.append("No clips are set: dataset.sources takes folders of clips, lists, tables and more.")


def guessed_kind(path: str, images: bool = False) -> SourceKind:
    """The kind of dataset at a place, of clips or of `images`, by what lies there; a folder that is not here counts as one of clips."""
    folder = Path(path)
    try:
        names = {item.name.lower() for item in folder.iterdir()} if kind_of(folder) == "folder" else set[str]()
    except OSError:  # it may not be read
        names = set[str]()
    if names & set(TABLES):
        return "table"
    if any(is_tar(Path(name)) for name in names):
        return "webdataset"
    if any(is_rows(Path(name)) for name in names):
        return "hub"
    if names & set(CAPTION_LISTS) and names & set(IMAGE_LISTS if images else VIDEO_LISTS):
        return "list"
    if {PairedFolders.model_fields[name].default for name in ("videos", "captions")} <= names:
        return "paired"
    return "hub" if not names and HUB_ID.fullmatch(path) else "folder"
