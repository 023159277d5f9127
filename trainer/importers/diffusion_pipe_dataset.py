"""diffusion-pipe's dataset TOML: directories, and buckets from areas, shapes and frame counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..files import kind_of
from ..source_files import is_tar
from .documents import Document
from .result import Entry, Report
from .rules import Rule, apply, ignore, off, only, refuse
from .sizes import add_buckets, joined, shapes, tell, whole
from .sources import EDIT, add_source

_SHAPING = ("size_buckets", "resolutions", "frame_buckets", "enable_ar_bucket", "ar_buckets", "min_ar", "max_ar", "num_ar_buckets")

DATASET: dict[str, Rule] = {
    "num_repeats": ignore("each directory has its own"),
    "directory.#.num_repeats": refuse("this directory has no path"),
    "*caption_prefix": refuse("no directory takes it"),
    "*skip_empty_caption": off("no directory takes it"),
    "*cache_shuffle_num": off("no directory takes it"),
    "*cache_shuffle_delimiter": only([", ", ","], "tags are parted by commas here too", "tags are parted by commas"),
    "*shuffle_tags": off("no directory takes it"),
    "*shuffle_metadata": ignore("the order of clips is drawn anew every epoch"),
    "directory.#.mask_path": refuse("masks are not supported yet"),
    "directory.#.default_mask_file": refuse("masks are not supported yet"),
    "directory.#.control_path": refuse("control videos are not supported yet"),
}
_STILLS = "1 is for still images, which are taken from the folders"
_ONLY_STILLS = f"{_STILLS}; a clip takes the longest bucket that it fills, where diffusion-pipe leaves it out"
_STILLS_TOO = "still images in the folders are taken as well, as 1 frame"
# What each directory may set for itself, else the file for all: a part of its source, and its value there or None.
PARTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "num_repeats": ("repeats", lambda value: value),
    "caption_prefix": (f"{EDIT}prefix", lambda value: value or None),
    "skip_empty_caption": (f"{EDIT}uncaptioned", lambda value: "skip" if value is True else None),
    "shuffle_tags": (f"{EDIT}shuffle_tags", lambda value: True if value is True else None),
    "cache_shuffle_num": (f"{EDIT}variants", whole),
}


def is_dataset(document: Document) -> bool:
    """Whether this is a dataset TOML: it has [[directory]] or buckets."""
    return bool({"directory", "frame_buckets", "resolutions", "size_buckets"} & document.data.keys())


def convert_dataset(document: Document, report: Report) -> None:
    """Fills the report from a dataset TOML."""
    _shape(document, report)
    _directories(document, report)
    apply(report, document, DATASET, "diffusion-pipe")


def _directories(document: Document, report: Report) -> None:
    entries = {entry.key: entry for entry in document.entries()}
    directories = document.data.get("directory")
    for n in range(len(directories) if isinstance(directories, list) else 0):
        if path := entries.get(f"directory.{n}.path"):
            given: dict[str, Entry | None] = {"path": path}
            fixed: dict[str, Any] = {"subfolders": False, "images": _takes_stills(entries, f"directory.{n}.")}
            for name, (part, meant) in PARTS.items():
                own, shared = entries.get(f"directory.{n}.{name}"), entries.get(name)
                entry = own or shared
                if entry is None or (value := meant(entry.value)) is None:
                    continue
                if entry is own or not report.answered(entry):
                    given[part] = replace(entry, value=value)
                else:
                    fixed[part] = value
                if name == "cache_shuffle_num":
                    fixed[f"{EDIT}shuffle_tags"] = True
            add_source(report, "folder", given, fixed)
            _note_unread(report, str(path.value))


def _note_unread(report: Report, folder: str) -> None:
    """Notes what diffusion-pipe would read in a folder and a folder source does not."""
    try:
        names = [item.name for item in Path(folder).iterdir()] if kind_of(Path(folder)) == "folder" else []
    except OSError:  # it may not be read
        return
    if "captions.json" in names:
        report.notes.append(f"captions.json in {folder} is not read: write its captions into a metadata.jsonl, for a Metadata Table.")
    if any(is_tar(Path(name)) for name in names):
        report.notes.append(f"The tars in {folder} are not read with its files: add them as a WebDataset.")


def _takes_stills(entries: Mapping[str, Entry], place: str) -> bool:
    """Whether still images of a directory are trained on: they are, unless explicit sizes hold none for them."""
    sizes = entries.get(f"{place}size_buckets") or entries.get("size_buckets")
    return sizes is None or any(size and size[0] == 1 for size in map(_explicit, sizes.values))


def _shape(document: Document, report: Report) -> None:
    """Buckets of each directory, from its own settings and the file's; the job has one list for all of them."""
    directories = document.data.get("directory")
    places = [f"directory.{n}." for n in range(len(directories) if isinstance(directories, list) else 0)] or [""]
    entries = {entry.key: entry for entry in document.entries()}
    for place in places:
        settings = {name: found for name in _SHAPING if (found := entries.get(place + name) or entries.get(name))}
        own = any(place + name in entries for name in settings)
        _buckets(report, settings, "all sources share the buckets" if own and len(places) > 1 else "")
    for key, entry in entries.items():
        if key.rpartition(".")[2] in _SHAPING and not report.answered(entry):
            report.unsupported(entry, "no bucket could be made: it needs frames and a size")


def _buckets(report: Report, settings: Mapping[str, Entry], why: str) -> None:
    """Adds the buckets of one directory, if its settings make any, and gives those that have no line yet theirs."""
    left = {name: entry for name, entry in settings.items() if not report.answered(entry)}
    explicit = [size for size in map(_explicit, _list(settings, "size_buckets")) if size]
    frames = [count for count in map(whole, _list(settings, "frame_buckets")) if count] if "frame_buckets" in settings else [1]
    sides = _sides(report, settings)
    add_buckets(report, explicit or [(count, *side) for count in frames for side in sides])
    stills = _stills({size[0] for size in explicit}, "") if explicit else _stills(set(frames), _STILLS_TOO)
    for name, entry in left.items():
        if explicit and name != "size_buckets":
            report.ignored(entry, "size_buckets overrules it")
        elif explicit:
            tell(report, entry, explicit, joined(stills, why))
        elif name in ("ar_buckets", "min_ar", "max_ar", "num_ar_buckets") and not _enabled(settings):
            report.ignored(entry, "enable_ar_bucket is off")
        elif name == "enable_ar_bucket" and not entry.value:
            report.ignored(entry, "it is off")
        elif not (frames and sides):
            continue  # another directory may use it
        elif name == "frame_buckets":
            tell(report, entry, [(count, None, None) for count in frames], joined(stills, why))
        elif name == "resolutions":
            alone = "" if "frame_buckets" in settings else f"with 1 frame, diffusion-pipe's default: {_ONLY_STILLS}"
            tell(report, entry, [(None, *side) for side in sides], joined(alone, _resolutions_why(settings, why)))
        elif name != "size_buckets":
            report.mapped(entry, "dataset.buckets", entry.value, "each area in these shapes")


def _stills(lengths: set[int], otherwise: str) -> str:
    """What becomes of still images beside clips of these lengths."""
    return _ONLY_STILLS if lengths == {1} else _STILLS if 1 in lengths else otherwise


def _resolutions_why(settings: Mapping[str, Entry], why: str) -> str:
    parts, values = [why] if why else [], _list(settings, "resolutions")
    if any(isinstance(value, list) for value in values) and not _enabled(settings):
        parts.append("diffusion-pipe trains a square of a pair's area, here the pair is the size itself")
    if len(values) > 1:
        parts.append("a clip is trained at the size nearest to it, not at each")
    return joined(*parts)


def _enabled(settings: Mapping[str, Entry]) -> bool:
    return "enable_ar_bucket" in settings and settings["enable_ar_bucket"].value is True


def _sides(report: Report, settings: Mapping[str, Entry]) -> list[tuple[int, int]]:
    """Heights and widths: pairs as they are, numbers as squares, or the areas of both in the shapes asked for."""
    pairs = [pair for pair in map(_pair, _list(settings, "resolutions")) if pair]
    if not _enabled(settings):
        return pairs
    ratios = _ratios(settings)
    return [side for height, width in pairs for side in shapes(report, height * width, ratios)] if ratios else pairs


def _ratios(settings: Mapping[str, Entry]) -> list[float]:
    """Shapes as width / height: listed, or evenly spaced in log from min_ar to max_ar."""
    listed = [ratio for ratio in map(_ratio, _list(settings, "ar_buckets")) if ratio]
    if listed:
        return listed
    least, most = (_ratio(settings[name].value) if name in settings else None for name in ("min_ar", "max_ar"))
    count = whole(settings["num_ar_buckets"].value) if "num_ar_buckets" in settings else None
    if not (least and most and count and count <= 100):
        return []
    return [least * (most / least) ** (n / max(count - 1, 1)) for n in range(count)]


def _ratio(value: Any) -> float | None:
    """A number, or [width, height]; None for anything else."""
    if isinstance(value, list):
        sides = _pair(value)
        return sides[1] / sides[0] if sides else None
    return float(value) if isinstance(value, (int, float)) and 0 < value < 100 else None


def _pair(value: Any) -> tuple[int, int] | None:
    """[width, height] or one side -> height, width."""
    sides = [whole(side) for side in (value if isinstance(value, list) else [value, value])]
    return (sides[1], sides[0]) if len(sides) == 2 and sides[0] and sides[1] else None


def _explicit(value: Any) -> tuple[int, int, int] | None:
    """[width, height, frames] -> frames, height, width; None for anything else."""
    parts = [whole(part) for part in value] if isinstance(value, list) and len(value) == 3 else []
    width, height, frames = parts or (None, None, None)
    return (frames, height, width) if width and height and frames else None


def _list(settings: Mapping[str, Entry], name: str) -> list[Any]:
    return settings[name].values if name in settings else []
