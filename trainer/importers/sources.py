"""Where clips come from. All formats add their sources of clips here, so that one place knows what the job can hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from .result import Entry, Report
from .rules import as_number

SourceKind = Literal["video folder", "lists", "table", "caption json", "hub dataset", "webdataset", "parquet", "images"]

# What the job holds of a kind: our name of each part. Kinds that are not here cannot be held yet.
HELD: dict[SourceKind, dict[str, str]] = {
    "video folder": {"path": "folder", "repeats": "repeats", "subfolders": "subfolders", "caption": "caption"},
}
DESCRIBED: dict[SourceKind, str] = {
    "video folder": "a folder of clips with a .txt beside each",
    "lists": "a list of videos and a list of prompts",
    "table": "a table of videos and captions",
    "caption json": "a videos2caption.json",
    "hub dataset": "a Hugging Face dataset",
    "webdataset": "WebDataset archives",
    "parquet": "encoded clips in Parquet",
    "images": "an image dataset",
}


def add_source(report: Report, kind: SourceKind, given: Mapping[str, Entry | None], fixed: Mapping[str, Any] | None = None) -> None:
    """Adds a source of clips to the job and gives the settings that made it their lines.

    `given` are foreign settings by part ("path", "repeats", …; None and empty ones are skipped), `fixed` what the other
    trainer does without a setting.
    """
    entries = {part: entry for part, entry in given.items() if entry is not None and entry.value not in (None, "")}
    names = HELD.get(kind)
    if names is None:
        for entry in entries.values():
            report.unsupported(entry, f"{DESCRIBED[kind]} cannot be read by this version: it takes {DESCRIBED['video folder']}")
        return
    folders: list[dict[str, Any]] = report.value("dataset.folders") or []
    source = {names[part]: value for part, value in (fixed or {}).items()}
    for part, entry in entries.items():
        if part in names:
            source[names[part]] = str(entry.value) if part == "path" else as_number(entry.value)
            report.mapped(entry, f"dataset.folders.{len(folders)}.{names[part]}", source[names[part]])
        else:
            report.ignored(entry, f"{DESCRIBED[kind]} needs no {part}")
    report.put("dataset.folders", [*folders, source])


def note_missing(report: Report) -> None:
    """A note if no source of clips could be taken over."""
    if not report.value("dataset.folders"):
        report.notes.append("No clips are set: dataset.folders takes folders of clips with a .txt beside each.")


def kind_of(path: str) -> SourceKind:
    """The kind of dataset at a place, by what lies there; a folder that is not on this machine counts as a folder of clips."""
    folder = Path(path)
    try:
        names = {item.name.lower() for item in folder.iterdir()} if folder.is_dir() else set[str]()
    except (OSError, ValueError):  # no name that a folder could have, or one that may not be read
        names = set[str]()
    if any(re.fullmatch(r"metadata\.(json|jsonl|csv)", name) for name in names):
        return "table"
    if any(name.endswith(".tar") for name in names):
        return "webdataset"
    if any(name.endswith(".parquet") for name in names):
        return "hub dataset"
    if any(re.fullmatch(r"(captions?|prompts?)\.txt", name) for name in names) and any(re.fullmatch(r"videos?\.txt", n) for n in names):
        return "lists"
    if not names and re.fullmatch(r"[\w.-]+/[\w.-]+", path) and not path.startswith("."):
        return "hub dataset"
    return "video folder"
