"""finetrainers: its command line of both generations (data_root, or dataset_config) and its dataset JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..files import kind_of
from ..job import Bucket
from ..source_settings import SOURCES
from . import sample_prompts
from .documents import Document
from .finetrainers_rules import DATASETS, RULES
from .model_rules import family
from .result import Entry, Report
from .rules import apply, as_number, follow, to
from .sizes import add_buckets, as_bucket, joined, sample_size, tell, tell_sample, whole
from .sources import EDIT, IMAGE_LISTS, SourceKind, add_source, guessed_kind

NAME = "finetrainers"
ONE_FRAME = "still images are clips of one frame"


def recognises(document: Document) -> bool:
    """A command with one of its own flags and none of kohya's, or a JSON with datasets that have a data_root or dataset_file."""
    if document.program:
        own = {"data_root", "dataset_file", "dataset_config", "training_type", "video_resolution_buckets"}
        return bool(own & document.data.keys()) and not {"network_module", "network_dim", "dit"} & document.data.keys()
    return _is_dataset(document)


def _is_dataset(document: Document) -> bool:
    datasets = document.data.get("datasets")
    return isinstance(datasets, list) and any(isinstance(part, dict) and {"data_root", "dataset_file"} & part.keys() for part in datasets)


def convert(documents: Sequence[Document], report: Report) -> list[Document]:
    """Fills the report from command lines and dataset files, and from the files that they name and that are here."""
    commands = [document for document in documents if document.program]
    datasets = [document for document in documents if not document.program]
    validation: list[Document] = []
    for document in commands:
        entries = {entry.key: entry for entry in document.entries()}
        if entry := entries.get("model_name"):
            family(report, entry)
        if entry := entries.get("dataset_config"):
            datasets += follow(report, document, entry, _is_dataset)
            _count_steps(report, entries)
        if entry := entries.get("validation_dataset_file"):
            validation += follow(report, document, entry, sample_prompts.recognises)
        _data_root(report, entries)
        if entry := entries.get("video_resolution_buckets"):
            _buckets(report, entry, [_named_size(entry, text) for text in entry.values])
        if entry := entries.get("image_resolution_buckets"):
            _buckets(report, entry, [_named_size(entry, f"1x{text}") for text in entry.values], ONE_FRAME)
        if entry := entries.get("validation_prompts"):
            _prompts(report, entry, entries)
        _unused_warmup(report, entries)
        apply(report, document, RULES, NAME)
    for document in datasets:
        _datasets(document, report)
        apply(report, document, DATASETS, NAME)
    sample_prompts.convert(validation, report)
    return [*commands, *datasets, *validation]


def _named_size(entry: Entry, text: Any) -> tuple[int, int, int]:
    bucket = Bucket.parse(str(text), entry.name)
    return bucket.frames, bucket.height, bucket.width


def _buckets(report: Report, entry: Entry, sizes: Sequence[tuple[int, int, int]], why: str = "") -> None:
    add_buckets(report, sizes)
    tell(report, entry, sizes, why)


def _data_root(report: Report, entries: dict[str, Entry]) -> None:
    """The source of the first generation: a folder with lists of videos and prompts, a table, or a hub dataset."""
    root, table = entries.get("data_root"), entries.get("dataset_file")
    videos, captions = entries.get("video_column"), entries.get("caption_column")
    fixed = {"images": True} if "image_resolution_buckets" in entries else {}
    columns = {"video_column": videos, "caption_column": captions}
    if table:
        add_source(report, "table", {"path": table, **columns})
        if root and Path(str(table.value)).parent == Path(str(root.value)):
            report.ignored(root, "clips are named relative to the table, which lies there")
        elif root:
            report.unsupported(root, "clips are named relative to the table's own folder: put it there")
    elif root and any(str(entry.value).endswith(".txt") for entry in (videos, captions) if entry):
        add_source(report, "list", {"path": root, "videos": videos, "captions": captions})
    elif root:
        add_source(report, guessed_kind(str(root.value)), {"path": root, **columns}, fixed)


def _count_steps(report: Report, entries: dict[str, Entry]) -> None:
    """The second generation counts micro-batches as steps; the job counts optimizer steps."""
    count = whole(entries["gradient_accumulation_steps"].value) if "gradient_accumulation_steps" in entries else 1
    for name, target in (
        ("train_steps", "schedule.steps"),
        ("checkpointing_steps", "output.save_every"),
        ("validation_steps", "samples.every"),
    ):
        entry = entries.get(name)
        steps = whole(entry.value) if entry else None
        if not (entry and steps and count and count > 1):
            continue
        value = max(steps // count, 1)
        report.put(target, value)
        why = f"{NAME} counts {count} micro-batches of an optimizer step as {count} steps"
        (report.mapped if value * count == steps else report.rounded)(entry, target, value, why)
    if entry := entries.get("flow_shift"):
        report.ignored(entry, f"{NAME} reads it and does not use it in training")


def _unused_warmup(report: Report, entries: dict[str, Entry]) -> None:
    entry, schedule = entries.get("lr_warmup_steps"), entries.get("lr_scheduler")
    if entry and schedule and schedule.value == "constant" and as_number(entry.value):
        why = f"{NAME} does not warm up with the schedule 'constant'; set it to 0 to do the same"
        to("optimizer.warmup", why)(report, entry)


def _prompts(report: Report, entry: Entry, entries: dict[str, Entry]) -> None:
    """Sample prompts: texts separated by ":::", each with a size after "@@@" if it likes."""
    separator = next((str(entries[n].value) for n in ("validation_prompt_separator", "validation_separator") if n in entries), ":::")
    prompts, sizes = [], []
    for text in " ".join(map(str, entry.values)).split(separator):
        prompt, _, size = text.partition("@@@")
        if not prompt.strip():
            continue
        prompts.append({"prompt": prompt.strip()})
        if size.strip():
            sizes.append(_named_size(entry, size.strip()))
            prompts[-1]["size"] = as_bucket(sample_size(report, sizes[-1]))
    report.put("samples.prompts", [*(report.value("samples.prompts") or []), *prompts])
    tell_sample(report, entry, "samples.prompts", sizes, f"{len(prompts)} prompts")


def _datasets(document: Document, report: Report) -> None:
    """The sources and buckets of a dataset JSON."""
    entries = {entry.key: entry for entry in document.entries()}
    count = len(document.data["datasets"])
    for n in range(count):
        root, table = entries.get(f"datasets.{n}.data_root"), entries.get(f"datasets.{n}.dataset_file")
        images = _of_images(entries, f"datasets.{n}.")
        given = {"path": table or root, f"{EDIT}prefix": entries.get(f"datasets.{n}.id_token")}
        given[f"{EDIT}remove_openings"] = entries.get(f"datasets.{n}.remove_common_llm_caption_prefixes")
        given |= _columns(entries, f"datasets.{n}.rename_columns.")
        fixed: dict[str, Any] = {"images": True} if images else {}
        if table or root:
            kind = "table" if table else guessed_kind(str(root.value) if root else "", images)
            if kind == "list" and images and root:
                fixed["videos"] = next((name for name in IMAGE_LISTS if kind_of(Path(str(root.value)) / name) == "file"), IMAGE_LISTS[0])
            _tell_images(report, entries.get(f"datasets.{n}.dataset_type"), kind, images)
            add_source(report, kind, given, fixed)
        _sizes(report, entries.get(f"datasets.{n}.video_resolution_buckets"), 3, count, images)
        _sizes(report, entries.get(f"datasets.{n}.image_resolution_buckets"), 2, count, images)


def _of_images(entries: dict[str, Entry], place: str) -> bool:
    """Whether a dataset is of images: its type says so, or where there is none its only buckets."""
    kind = entries.get(f"{place}dataset_type")
    if kind is not None and kind.value in ("image", "video"):
        return kind.value == "image"
    return f"{place}image_resolution_buckets" in entries and f"{place}video_resolution_buckets" not in entries


def _tell_images(report: Report, entry: Entry | None, kind: SourceKind, images: bool) -> None:
    """The line of a dataset's type where it decides what is taken of the next source."""
    if entry and images and "images" in SOURCES[kind].model_fields:
        place = len(report.value("dataset.sources") or [])
        report.mapped(entry, f"dataset.sources.{place}.images", True, "videos that lie beside the images are taken too")


def _columns(entries: dict[str, Entry], place: str) -> dict[str, Entry | None]:
    """The columns that are renamed to what finetrainers reads, as columns of a table."""
    wanted = {"caption": "caption_column", "video": "video_column", "image": "video_column", "file_name": "video_column"}
    renamed = [entry for key, entry in entries.items() if key.startswith(place) and str(entry.value) in wanted]
    return {wanted[str(entry.value)]: replace(entry, value=entry.key.removeprefix(place)) for entry in renamed}


def _sizes(report: Report, entry: Entry | None, length: int, datasets: int, images: bool) -> None:
    """The buckets of one dataset: [frames, height, width], or [height, width] of images; those of the other kind are not used."""
    if entry is None:
        return
    if images != (length == 2):
        report.ignored(entry, f"{NAME} does not read it: this dataset is of {'images' if images else 'videos'}")
        return
    sizes = [[1, *map(whole, size)][-3:] for size in entry.values if isinstance(size, list) and len(size) == length]
    good = [(f, h, w) for f, h, w in sizes if f and h and w]
    if len(good) == len(entry.values):
        why = joined(ONE_FRAME if images else "", "all datasets share the buckets" if datasets > 1 else "")
        _buckets(report, entry, good, why)
    else:
        report.unsupported(entry, "a bucket is [frames, height, width], that of images [height, width]")
