"""OneTrainer: presets and saved configurations, also with a `video_config` section."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .documents import Document
from .families import find_family
from .model_rules import family, is_single, note_shift
from .onetrainer_concepts import CONCEPTS, add_concepts, is_concepts
from .onetrainer_lists import SAMPLES, add_samples, is_samples
from .onetrainer_memory import add_memory
from .onetrainer_rules import PARTS, RULES
from .result import Entry, Report
from .rules import alone, apply, as_number, follow, overrule, to
from .sizes import Size, add_buckets, joined, shapes, tell, whole

NAME = "OneTrainer"
FRAMES = 25  # its default
RATIOS = (1.0, 5 / 4, 4 / 5, 3 / 2, 2 / 3, 7 / 4, 4 / 7, 2.0, 1 / 2)  # width / height; its own run to 4:1


def recognises(document: Document) -> bool:
    """A JSON object with OneTrainer's top keys, or one of its lists of concepts."""
    own = {"training_method", "model_type", "video_config", "concept_file_name", "layer_offload_fraction", "base_model_name"}
    return not document.program and (bool(own & document.data.keys()) or is_concepts(document))


def convert(documents: Sequence[Document], report: Report) -> list[Document]:
    """Fills the report from configurations, and from the lists of concepts and samples that they name."""
    lists = [document for document in documents if is_concepts(document)]
    configurations = [document for document in documents if not is_concepts(document)]
    samples: list[Document] = []
    masks = _masks(configurations)
    if masks:
        report.notes.append("Still images of the concepts are not taken, since masks or control images may lie among them.")
    alone(configurations)
    for document in configurations:
        entries = {entry.key: entry for entry in document.entries()}
        if entry := entries.get("model_type"):
            family(report, entry)
        elif entry := entries.get("base_model_name"):
            report.family = find_family(str(entry.value))
        if entry := entries.get("concept_file_name"):
            lists += follow(report, document, entry, is_concepts)
        if entry := entries.get("sample_definition_file_name"):
            samples += follow(report, document, entry, is_samples)
        _shape(report, entries)
        _by_steps(report, entries)
        add_memory(report, entries)
        _of_the_transformer(report, entries)
        add_concepts(report, entries, "concepts", masks)
        add_samples(report, entries, "samples")
        apply(report, document, RULES, NAME)
        note_shift(report, NAME)
    for document in lists:
        add_concepts(report, {entry.key: entry for entry in document.entries()}, "data", masks)
        apply(report, document, {f"data.{name.partition('.')[2]}": rule for name, rule in CONCEPTS.items()}, NAME)
    for document in samples:
        add_samples(report, {entry.key: entry for entry in document.entries()}, "data")
        apply(report, document, {f"data.{name.partition('.')[2]}": rule for name, rule in SAMPLES.items()}, NAME)
    return [*configurations, *lists, *samples]


def _of_the_transformer(report: Report, entries: dict[str, Entry]) -> None:
    """Its own file, rate and type, which overrule those of the whole model."""
    own, base = entries.get("transformer.model_name"), entries.get("base_model_name")
    if own and own.value and base and is_single(base.value):
        PARTS["transformer.model_name"](report, own)
    for name in ("learning_rate", "weight_dtype"):
        overrule(report, entries, f"transformer.{name}", name)


def _masks(configurations: Sequence[Document]) -> bool:
    """Whether pictures among the clips are masks or control images."""
    names = ("masked_training", "custom_conditioning_image")
    return any((entry := document.entry(name)) is not None and entry.value is True for document in configurations for name in names)


def _shape(report: Report, entries: dict[str, Entry]) -> None:
    """Buckets: frames × the areas of resolution, in several shapes unless aspect_ratio_bucketing is off."""
    frames, resolution = entries.get("frames"), entries.get("resolution")
    shaped = "aspect_ratio_bucketing" not in entries or entries["aspect_ratio_bucketing"].value is not False
    counts = [count for count in map(whole, _parts(frames)) if count]
    sides: list[tuple[int, int]] = []
    for part in _parts(resolution):
        pair = [whole(side) for side in re.split("x", part)]
        if len(pair) == 1 and pair[0]:
            sides += shapes(report, pair[0] ** 2, RATIOS) if shaped else [(pair[0], pair[0])]
        elif len(pair) == 2 and pair[0] and pair[1]:
            sides.append((pair[1], pair[0]))
    default = 1 if report.family and report.family.images else FRAMES
    if sides:
        add_buckets(report, [(count, *side) for count in counts or [default] for side in sides])
    if frames and sides and counts:
        tell(report, frames, [(count, None, None) for count in counts])
    elif frames:
        report.unsupported(frames, "a bucket needs a size too: resolution is missing; set dataset.buckets")
    if resolution and sides:
        sizes: list[Size] = [(None, *side) for side in sides]
        in_shapes = "this area in nine shapes; a clip takes the nearest" if shaped and len(sides) > 1 else ""
        tell(report, resolution, sizes, joined(in_shapes, "" if counts else f"with {default} frame{'s' * (default > 1)}, {NAME}'s default"))
    elif resolution:
        report.unsupported(resolution, "a size is a number or widthxheight; set dataset.buckets")


def _parts(entry: Entry | None) -> list[str]:
    return [part.strip().lower() for part in str(entry.value).split(",")] if entry and entry.value not in (None, "") else []


def _by_steps(report: Report, entries: dict[str, Entry]) -> None:
    """Settings whose unit stands beside them: warm-up, saving, samples."""
    count = whole(entries["gradient_accumulation_steps"].value) if "gradient_accumulation_steps" in entries else 1
    for name, target in (("save_every", "output.save_every"), ("sample_after", "samples.every")):
        entry, unit = entries.get(name), entries.get(f"{name}_unit")
        if entry is None:
            continue
        if unit and unit.value == "STEP" and whole(entry.value):
            to(target)(report, entry)
        elif not as_number(entry.value) or (unit and unit.value == "NEVER"):
            report.ignored(entry, "it is off")
        else:
            report.unsupported(entry, f"{target} counts steps; this is by {str(unit.value).lower() if unit else 'epoch'}")
    if (entry := entries.get("learning_rate_warmup_steps")) is not None:
        steps: Any = as_number(entry.value)
        if isinstance(steps, (int, float)) and 0 < steps <= 1:
            report.unsupported(entry, "it is a share of all steps there; set optimizer.warmup")
        elif isinstance(steps, (int, float)) and count and count > 1 and steps:
            report.put("optimizer.warmup", int(steps // count))
            kind = report.mapped if steps % count == 0 else report.rounded
            kind(entry, "optimizer.warmup", int(steps // count), f"{NAME} counts {count} micro-batches of an optimizer step")
        else:
            to("optimizer.warmup")(report, entry)
