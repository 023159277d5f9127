"""OneTrainer's lists: concepts (where clips come from) and samples (what is drawn while training)."""

from __future__ import annotations

from .documents import Document
from .result import Entry, Report
from .rules import Rule, ignore, off, once, only, refuse
from .sample_prompts import add_prompt
from .sources import EDIT, add_source

SOURCE = {"path": "path", "repeats": "repeats", "include_subdirectories": "subfolders", "loss_weight": "weight"}  # parts of a source

CONCEPTS: dict[str, Rule] = {
    "concepts.#.name": ignore("a folder needs no name"),
    "concepts.#.seed": ignore("all draws come from schedule.seed"),
    "concepts.#.enabled": ignore("it is trained on"),
    "concepts.#.type": only(["STANDARD", "GENERAL"], "clips are what is trained on", "only plain concepts are trained on"),
    "concepts.#.balancing": only(["REPEATS"], "repeats weigh folders here too", "repeats weigh folders"),
    "concepts.#.balancing_strategy": only(["REPEATS"], "repeats weigh folders here too", "repeats weigh folders"),
    "concepts.#.*_variations": only([1], "one, as here", "clips and captions are encoded once"),
    "concepts.#.concept_stats*": ignore("the dataset is counted anew"),
    "concepts.#.text.prompt_source": only(
        ["sample", "concept"], "the .txt beside the clip is the caption", "captions are the .txt beside the clip"
    ),
    "concepts.#.text.prompt_path": refuse("captions are the .txt beside the clip, or the folder's caption"),
    "concepts.#.text.*enable*": off("captions are taken as they are"),
    "concepts.#.text.*": ignore("it belongs to an augmentation of captions"),
    "concepts.#.image.enable_*": off("clips are not augmented yet"),
    "concepts.#.image.*": ignore("it belongs to an augmentation of images"),
}

SAMPLES: dict[str, Rule] = {
    "samples.#.diffusion_steps": once("samples.steps"),
    "samples.#.cfg_scale": once("samples.guidance"),
    "samples.#.random_seed": off("a sample video keeps its seed"),
    "samples.#.enabled": ignore("it is drawn"),
    "samples.#.*": ignore("sample videos are drawn the model's usual way"),
}


def is_concepts(document: Document) -> bool:
    """A list of objects with a path and OneTrainer's groups of augmentations."""
    rows = document.data.get("data")
    return isinstance(rows, list) and any(
        isinstance(row, dict) and "path" in row and {"image", "text", "enabled"} & row.keys() for row in rows
    )


def is_samples(document: Document) -> bool:
    """A list of objects with a prompt."""
    rows = document.data.get("data")
    return isinstance(rows, list) and any(isinstance(row, dict) and "prompt" in row for row in rows)


def add_concepts(report: Report, entries: dict[str, Entry], place: str) -> None:
    """Adds each concept of a list as a source; a disabled one gives all its settings the line that says so."""
    for row in _rows(entries, place):
        if "path" not in row:
            continue
        if row.get("enabled") and row["enabled"].value is False:
            for entry in row.values():
                report.ignored(entry, "this concept is disabled")
            continue
        given = {part: row.get(name) for name, part in SOURCE.items()}
        if (shuffled := row.get("text.enable_tag_shuffling")) and shuffled.value is True:
            given |= {f"{EDIT}shuffle_tags": shuffled, f"{EDIT}keep_tags": row.get("text.keep_tags_count")}
        add_source(report, "folder", given, {} if "include_subdirectories" in row else {"subfolders": False})


def add_samples(report: Report, entries: dict[str, Entry], place: str) -> None:
    """Adds each sample of a list as a prompt; a disabled one gives all its settings the line that says so."""
    for row in _rows(entries, place):
        if "prompt" not in row:
            continue
        if row.get("enabled") and row["enabled"].value is False:
            for entry in row.values():
                report.ignored(entry, "this sample is disabled")
            continue
        add_prompt(report, row)


def _rows(entries: dict[str, Entry], place: str) -> list[dict[str, Entry]]:
    """The settings of each object of a list, by name."""
    rows: dict[str, dict[str, Entry]] = {}
    for key, entry in entries.items():
        if key.startswith(f"{place}."):
            number, _, name = key.removeprefix(f"{place}.").partition(".")
            rows.setdefault(number, {})[name] = entry
    return list(rows.values())
