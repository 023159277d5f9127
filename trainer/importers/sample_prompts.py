"""validation.json and .csv of finetrainers and FastVideo, and OneTrainer's samples, as sample prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .documents import Document
from .result import Entry, Report
from .rules import Rule, apply, ignore, once, refuse
from .sizes import as_bucket, sample_size, tell_sample, whole

NAME = "validation files"
TEXTS = {
    "caption": "prompt",
    "prompt": "prompt",
    "negative_prompt": "negative",
    "image_path": "image",
    "base_image_path": "image",
    "seed": "seed",
}
FRAMES = ("num_frames", "frames")

RULES: dict[str, Rule] = {
    "data.#.num_inference_steps": once("samples.steps"),
    "data.#.diffusion_steps": once("samples.steps"),
    "data.#.guidance_scale": once("samples.guidance"),
    "data.#.cfg_scale": once("samples.guidance"),
    "data.#.frame_rate": ignore("sample videos play at the model's own rate"),
    "data.#.video_path": refuse("sample videos start from text or an image"),
    "data.#.control_*_path": refuse("sample videos start from text or an image"),
}


def recognises(document: Document) -> bool:
    """A list of objects, alone or under "data", of which each has a caption or prompt."""
    rows = document.data.get("data")
    return not document.program and isinstance(rows, list) and rows != [] and all(isinstance(row, dict) and _text(row) for row in rows)


def _text(row: dict[str, Any]) -> str:
    return str(row.get("caption") or row.get("prompt") or "")


def convert(documents: Sequence[Document], report: Report) -> list[Document]:
    """Adds the prompts of these files to the report; returns the files."""
    for document in documents:
        entries = {entry.key: entry for entry in document.entries()}
        for n in range(len(document.data["data"])):
            prefix = f"data.{n}."
            add_prompt(report, {key.removeprefix(prefix): entry for key, entry in entries.items() if key.startswith(prefix)})
        apply(report, document, RULES, NAME)
    return list(documents)


def add_prompt(report: Report, row: dict[str, Entry]) -> None:
    """Adds one sample prompt from its settings by name, and gives those that it holds their lines."""
    known: list[dict[str, Any]] = report.value("samples.prompts") or []
    target = f"samples.prompts.{len(known)}"
    prompt: dict[str, Any] = {}
    for name, ours in TEXTS.items():
        if (entry := row.get(name)) and entry.value not in (None, "") and ours not in prompt:
            prompt[ours] = (whole(entry.value) or 0) if ours == "seed" else str(entry.value)
            report.mapped(entry, f"{target}.{ours}", prompt[ours])
    frames = next((row[name] for name in FRAMES if name in row), None)
    parts = (frames, row.get("height"), row.get("width"))
    size = [whole(entry.value) if entry else None for entry in parts]
    if all(size):
        given = (size[0] or 1, size[1] or 1, size[2] or 1)
        prompt["size"] = as_bucket(sample_size(report, given))
        for n, entry in enumerate(parts):
            assert entry is not None
            only = [value if n == place else None for place, value in enumerate(given)]
            name = ("frames", "height", "width")[n]
            tell_sample(report, entry, f"{target}.size.{name}", [(only[0], only[1], only[2])], prompt["size"][name])
    else:
        for entry in parts:
            if entry and entry.value not in (None, ""):
                report.unsupported(entry, "a size needs frames, height and width")
    report.put("samples.prompts", [*known, prompt])
