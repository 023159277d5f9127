"""musubi-tuner's dataset TOML: [general] and [[datasets]]."""

from __future__ import annotations

from typing import Any

from .documents import Document
from .result import Entry, Report
from .rules import Rule, apply, ignore, off, once, only, refuse
from .sizes import add_buckets, joined, tell, whole
from .sources import add_source

NAME = "musubi-tuner"
_CAPTIONS = only(
    [".txt", "txt", ".caption", "caption"], "captions in .txt and .caption files are found", "captions are .txt or .caption files"
)
WINDOW = only([9], "a section of FramePack has 9 latent frames here too", "a section of FramePack has 9 latent frames")
_ONE_FRAME = "a single frame is trained at this place of a section here too"
_OTHER_FRAME = "a single frame is trained with clean index 0, as target 9 and with the frame after it"
_BUCKETS = only([True], "a clip takes the bucket nearest to its shape", "clips are sorted into buckets; give one bucket to have one size")


def _extraction(report: Report, entry: Entry) -> None:
    """Which frames of a clip: its 'uniform' spaces whole pieces, ours single frames, so that they are not the same."""
    if entry.value in ("head", "chunk", "slide"):
        once("dataset.frame_sample_strategy")(report, entry)
    else:
        report.unsupported(entry, "dataset.frame_sample_strategy takes the first frames (head), or all parts of a clip (chunk, slide)")


RULES: dict[str, Rule] = {}
for _place in ("general", "datasets.#"):
    RULES |= {
        f"{_place}.caption_extension": _CAPTIONS,
        f"{_place}.batch_size": once("schedule.batch_size"),
        f"{_place}.num_repeats": ignore("each dataset has its own"),
        f"{_place}.enable_bucket": _BUCKETS,
        f"{_place}.bucket_no_upscale": once("dataset.no_upscale"),
        f"{_place}.cache_directory": ignore("the cache has one place and serves all clips"),
        f"{_place}.frame_extraction": _extraction,
        f"{_place}.frame_stride": once("dataset.frame_stride"),
        f"{_place}.frame_sample": ignore("it belongs to frame_extraction 'uniform'"),
        f"{_place}.max_frames": ignore("it belongs to frame_extraction 'full'"),
        f"{_place}.source_fps": ignore("each clip's own timestamps are read, and it is retimed to the model's rate"),
        f"{_place}.control_directory": refuse("control videos are not supported yet"),
        f"{_place}.control_resolution": refuse("control videos are not supported yet"),
        f"{_place}.no_resize_control": ignore("control videos are not supported yet"),
        f"{_place}.multiple_target": off("layered images are not trained on"),
        f"{_place}.fp_latent_window_size": WINDOW,
        f"{_place}.fp_1f_clean_indices": only([[0]], _ONE_FRAME, _OTHER_FRAME),
        f"{_place}.fp_1f_target_index": only([9], _ONE_FRAME, _OTHER_FRAME),
        f"{_place}.fp_1f_no_post": off(_OTHER_FRAME),
    }


def is_general(name: str) -> bool:
    """Whether a setting of [general] is one that datasets share."""
    return f"general.{name}" in RULES or name in ("resolution", "target_frames")


def is_dataset(document: Document) -> bool:
    """A TOML with [[datasets]] that name a directory or a JSON-lines file of videos or images."""
    datasets = document.data.get("datasets")
    if document.program or not isinstance(datasets, list):
        return False
    return any(isinstance(part, dict) and any(key.endswith(("_directory", "_jsonl_file")) for key in part) for part in datasets)


def convert_dataset(document: Document, report: Report) -> None:
    """Fills the report from a dataset file."""
    for n, part in enumerate(document.data["datasets"]):
        if isinstance(part, dict):
            _source(document, report, n)
    _shape(document, report)
    apply(report, document, RULES, NAME)


def _source(document: Document, report: Report, n: int) -> None:
    """One dataset as a source; its repeats, or those of [general]."""
    own = {entry.key.rpartition(".")[2]: entry for entry in document.entries() if entry.key.startswith(f"datasets.{n}.")}
    general = document.entry("general.num_repeats")
    repeats, fixed = own.get("num_repeats"), dict[str, Any]()
    if repeats is None and general is not None:
        if report.answered(general):
            fixed["repeats"] = general.value
        else:
            repeats = general
    if path := own.get("video_directory"):
        add_source(report, "folder", {"path": path, "repeats": repeats}, {"subfolders": False, **fixed})
    elif path := own.get("image_directory"):
        add_source(report, "folder", {"path": path, "repeats": repeats}, {"subfolders": False, "images": True, **fixed})
    elif path := own.get("video_jsonl_file") or own.get("image_jsonl_file"):
        column = "video_path" if "video_jsonl_file" in own else "image_path"
        add_source(report, "table", {"path": path, "repeats": repeats}, {"video_column": column, **fixed})


def _shape(document: Document, report: Report) -> None:
    """Buckets of all datasets together: target_frames × resolution, each from the dataset or from [general]; images have one frame."""
    entries = {entry.key: entry for entry in document.entries()}
    told: list[Entry] = []
    count = len(document.data["datasets"])
    why = "all datasets share the buckets" if count > 1 else ""
    for n in range(count):
        frames = entries.get(f"datasets.{n}.target_frames") or entries.get("general.target_frames")
        resolution = entries.get(f"datasets.{n}.resolution") or entries.get("general.resolution")
        images = f"datasets.{n}.image_directory" in entries or f"datasets.{n}.image_jsonl_file" in entries
        counts = [1] if images else [number for number in map(whole, frames.values if frames else []) if number]
        side = _side(resolution)
        if counts and side:
            add_buckets(report, [(number, *side) for number in counts])
        for entry in (frames, resolution):
            if entry is None or entry in told or (not entry.key.startswith("datasets") and n + 1 < count and not (counts and side)):
                continue
            told.append(entry)
            if not (counts and side):
                report.unsupported(entry, "a bucket needs target_frames and resolution; set dataset.buckets")
            elif images and entry is frames:
                report.ignored(entry, "images have one frame")
            elif entry is frames:
                each = "a clip takes the longest it fills, not each" if len(counts) > 1 else ""
                tell(report, entry, [(number, None, None) for number in counts], joined(each, why))
            elif side:
                tell(report, entry, [(None, *side)], why)


def _side(entry: Entry | None) -> tuple[int, int] | None:
    """resolution, [width, height] or one side, as height, width."""
    sides = [whole(side) for side in (entry.values * 2)[:2]] if entry else []
    return (sides[1], sides[0]) if len(sides) == 2 and sides[0] and sides[1] else None
