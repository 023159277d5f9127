"""OneTrainer's lists: their rows, and samples, which are drawn while training."""

from __future__ import annotations

from .documents import Document
from .result import Entry, Report
from .rules import Rule, ignore, off, once
from .sample_prompts import add_prompt

SAMPLES: dict[str, Rule] = {
    "samples.#.diffusion_steps": once("samples.steps"),
    "samples.#.cfg_scale": once("samples.guidance"),
    "samples.#.random_seed": off("a sample video keeps its seed"),
    "samples.#.enabled": ignore("it is drawn"),
    "samples.#.*": ignore("sample videos are drawn the model's usual way"),
}


def is_samples(document: Document) -> bool:
    """A list of objects with a prompt."""
    rows = document.data.get("data")
    return isinstance(rows, list) and any(isinstance(row, dict) and "prompt" in row for row in rows)


def add_samples(report: Report, entries: dict[str, Entry], place: str) -> None:
    """Adds each sample of a list as a prompt; a disabled one gives all its settings the line that says so."""
    for row in rows_of(entries, place):
        if "prompt" not in row:
            continue
        if row.get("enabled") and row["enabled"].value is False:
            for entry in row.values():
                report.ignored(entry, "this sample is disabled")
            continue
        add_prompt(report, row)


def rows_of(entries: dict[str, Entry], place: str) -> list[dict[str, Entry]]:
    """The settings of each object of a list, by name."""
    rows: dict[str, dict[str, Entry]] = {}
    for key, entry in entries.items():
        if key.startswith(f"{place}."):
            number, _, name = key.removeprefix(f"{place}.").partition(".")
            rows.setdefault(number, {})[name] = entry
    return list(rows.values())
