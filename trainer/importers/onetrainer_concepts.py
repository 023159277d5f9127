"""OneTrainer's concepts: where clips come from, and what is done to their captions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..files import kind_of
from .documents import Document
from .onetrainer_lists import rows_of
from .result import Entry, Report
from .rules import Rule, as_number, ignore, off, once, only, plain, refuse
from .sources import DESCRIBED, EDIT, SourceKind, add_source, guessed_kind

SOURCE = {"path": "path", "include_subdirectories": "subfolders", "loss_weight": "weight"}  # parts of a source
PROMPTS = {"sample": "sidecar lines", "concept": "one file", "filename": "file name"}  # prompt_source -> captions_from
_UNTRAINED = {
    "validation": "these clips are for validation: there is no validation loss yet, and they are not trained on",
    "priorprediction": "prior preservation is not supported yet, and these clips are not trained on",
}


def _crop(report: Report, entry: Entry) -> None:
    once("dataset.crop_position")(report, replace(entry, value="random" if entry.value is True else "centre"))


CONCEPTS: dict[str, Rule] = {
    "concepts.#.name": ignore("a folder needs no name"),
    "concepts.#.seed": ignore("all draws come from schedule.seed"),
    "concepts.#.enabled": ignore("it is trained on"),
    "concepts.#.type": only(["STANDARD", "GENERAL"], "clips are what is trained on", "only plain concepts are trained on"),
    "concepts.#.validation_concept": off(_UNTRAINED["validation"]),
    "concepts.#.balancing": only(["REPEATS"], "repeats weigh folders here too", "repeats weigh folders"),
    "concepts.#.balancing_strategy": only(["REPEATS"], "repeats weigh folders here too", "repeats weigh folders"),
    "concepts.#.image_variations": once("dataset.variants"),
    "concepts.#.text_variations": ignore("all captions of a clip are encoded, and one is drawn each time it is seen"),
    "concepts.#.concept_stats*": ignore("the dataset is counted anew"),
    "concepts.#.text.prompt_source": refuse(f"captions come from: {', '.join(PROMPTS)}"),
    "concepts.#.text.prompt_path": ignore("prompt_source is not 'concept'"),
    "concepts.#.text.tag_delimiter": ignore("tags are not shuffled"),
    "concepts.#.text.tag_dropout_enable": off("single tags are not dropped; captions.dropout drops whole captions"),
    "concepts.#.text.caps_randomize_enable": off("the case of captions is not changed"),
    "concepts.#.text.*enable*": off("captions are taken as they are"),
    "concepts.#.text.*": ignore("it belongs to an augmentation of captions"),
    "concepts.#.image.enable_crop_jitter": _crop,
    "concepts.#.image.enable_resolution_override": off("sizes are those of the whole dataset: add these to dataset.buckets"),
    "concepts.#.image.enable_*mask*": off("masks are not supported yet"),
    "concepts.#.image.enable_*": off("clips are not augmented yet"),
    "concepts.#.image.*": ignore("it belongs to an augmentation of images"),
}


def is_concepts(document: Document) -> bool:
    """A list of objects with a path and OneTrainer's groups of augmentations."""
    rows = document.data.get("data")
    return isinstance(rows, list) and any(
        isinstance(row, dict) and "path" in row and {"image", "text", "enabled"} & row.keys() for row in rows
    )


def add_concepts(report: Report, entries: dict[str, Entry], place: str, masks: bool) -> None:
    """Adds each concept of a list as a source; one that is not trained on gives all its settings a line that says so.

    Still images are taken too, as OneTrainer does, unless `masks` lie among them.
    """
    for row in rows_of(entries, place):
        if "path" not in row or not row["path"].value:
            for entry in row.values():
                report.unsupported(entry, "this concept has no path")
        elif row.get("enabled") and row["enabled"].value is False:
            _leave_out(report, row, "this concept is disabled")
        elif kept := _untrained(row):
            report.unsupported(*kept)
            _leave_out(report, row, "this concept is not trained on")
        else:
            _add(report, row, not masks)


def _leave_out(report: Report, row: Mapping[str, Entry], why: str) -> None:
    for entry in row.values():
        if not report.answered(entry):
            report.ignored(entry, why)


def _untrained(row: Mapping[str, Entry]) -> tuple[Entry, str] | None:
    """The setting that keeps a concept from being trained on, and what it means; None if there is none."""
    kind, old = row.get("type"), row.get("validation_concept")
    if kind and (why := _UNTRAINED.get(plain(kind.value))):
        return kind, why
    return (old, _UNTRAINED["validation"]) if old and old.value is True else None


def _add(report: Report, row: Mapping[str, Entry], images: bool) -> None:
    kind = _kind(row)
    given: dict[str, Entry | None] = {part: row.get(name) for name, part in SOURCE.items()}
    fixed: dict[str, Any] = {"images": images}
    if kind == "folder" and "include_subdirectories" not in row:
        fixed["subfolders"] = False
    _repeats(report, row, given, fixed)
    _captions(report, row, kind, given, fixed)
    _tags(report, row, given, fixed)
    add_source(report, kind, given, fixed)


def _kind(row: Mapping[str, Entry]) -> SourceKind:
    """A folder; what is none is a hub id to OneTrainer, and videos/ beside captions/ hold the captions of each clip apart."""
    path = str(row["path"].value)
    found = guessed_kind(path)
    paired = found == "paired" and _asked(row) == "sample"
    return "paired" if paired else "hub" if found == "hub" and kind_of(Path(path)) != "folder" else "folder"


def _asked(row: Mapping[str, Entry]) -> str:
    entry = row.get("text.prompt_source")
    return str(entry.value) if entry and entry.value else "sample"


def _repeats(report: Report, row: Mapping[str, Entry], given: dict[str, Entry | None], fixed: dict[str, Any]) -> None:
    """How often each clip is seen: `balancing`, in older files `repeats`, which need not be whole there."""
    entry, strategy = row.get("balancing") or row.get("repeats"), row.get("balancing_strategy")
    number = as_number(entry.value) if entry else None
    if entry is None or isinstance(number, bool) or not isinstance(number, (int, float)):
        return
    if strategy and plain(strategy.value) == "samples":
        report.unsupported(entry, "it is a number of clips an epoch; here repeats weigh folders: set repeats of this source")
    elif isinstance(number, int) and number >= 1:
        given["repeats"] = entry
    else:
        fixed["repeats"] = whole = max(math.floor(number + 0.5), 1)
        report.rounded(entry, f"{_place(report)}.repeats", whole, f"repeats are whole and at least 1: {number:g} -> {whole}")


def _captions(report: Report, row: Mapping[str, Entry], kind: SourceKind, given: dict[str, Entry | None], fixed: dict[str, Any]) -> None:
    """Where captions come from; only a plain folder has the choice."""
    entry, file, asked = row.get("text.prompt_source"), row.get("text.prompt_path"), _asked(row)
    if kind != "folder" and asked == "sample":
        if entry:
            report.ignored(entry, f"{DESCRIBED[kind]} has its captions in files of its own")
    elif entry and kind != "folder":
        report.unsupported(entry, "captions of a hub dataset are those of its files; download it and give its folder")
    elif entry and asked in PROMPTS:
        given["captions_from"] = replace(entry, value=PROMPTS[asked])
        given["caption_file"] = file if asked == "concept" else None
    else:
        fixed["captions_from"] = PROMPTS["sample"]


def _tags(report: Report, row: Mapping[str, Entry], given: dict[str, Entry | None], fixed: dict[str, Any]) -> None:
    """Shuffling of tags: as many orders as there are text variations; one tag stays in its place unless told otherwise."""
    shuffled, delimiter, kept = (row.get(f"text.{name}") for name in ("enable_tag_shuffling", "tag_delimiter", "keep_tags_count"))
    if not (shuffled and shuffled.value is True):
        return
    given |= {f"{EDIT}shuffle_tags": shuffled, f"{EDIT}keep_tags": kept, f"{EDIT}variants": row.get("text_variations")}
    if kept is None:
        fixed[f"{EDIT}keep_tags"] = 1
    if delimiter and str(delimiter.value).strip() == ",":
        report.ignored(delimiter, "tags are parted by commas here too")
    elif delimiter:
        report.unsupported(delimiter, "tags are parted by commas")


def _place(report: Report) -> str:
    return f"dataset.sources.{len(report.value('dataset.sources') or [])}"
