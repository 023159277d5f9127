"""Hugging Face datasets: a local folder of any common layout, or a hub id."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ...files import kind_of
from ...hub import HUB_ID, snapshot
from ...source_files import ROW_EXTENSIONS, TABLES, TAR_EXTENSIONS, VIDEO_LISTS, is_rows, is_tar
from ...source_settings import HubDataset, MetadataTable, VideoFolder, VideoList
from .arrow_files import scan_rows
from .context import ScanContext
from .endings import PICTURE_EXTENSIONS, VIDEO_EXTENSIONS
from .folder import CAPTION_EXTENSIONS, files_below, scan_folder
from .lists import scan_list
from .paths import folder_path, usual_file
from .record import Listed
from .table import scan_table
from .webdataset import scan_tars

SPLITS = ("train", "training", "test", "validation", "valid", "val", "dev", "eval")
_ENDINGS = (*VIDEO_EXTENSIONS, *PICTURE_EXTENSIONS, *CAPTION_EXTENSIONS, *ROW_EXTENSIONS, *TAR_EXTENSIONS, ".csv", ".json", ".jsonl")
FILES = ["*" + "".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in end) for end in _ENDINGS]  # patterns know upper and lower case


def scan_hub(source: HubDataset, context: ScanContext) -> Iterator[Listed]:
    """Every clip of the dataset's split, by the first layout found in this order.

    A metadata table; Parquet or Arrow files; tars; videos.txt and prompts.txt; clips with sidecar captions.
    """
    root = _root(source, context)
    for item in _layout(root, source, context):
        if item.path.is_relative_to(context.unpacked or root) or Path(os.path.normpath(item.path)).is_relative_to(root):
            yield item
        else:
            yield replace(item, fault="lies outside the dataset's folder")


def _root(source: HubDataset, context: ScanContext) -> Path:
    """The dataset's folder; raises UserError if it is nowhere and may not be downloaded."""
    text = source.source.strip()
    path = folder_path(text)
    if not text:
        raise context.fail("source", "is empty.", "Give a dataset folder or a hub id (owner/name).")
    if kind_of(path) == "folder":
        return path.absolute()
    if not HUB_ID.fullmatch(text):
        raise context.fail("source", f"'{path}' does not exist.", "Give a dataset folder or a hub id (owner/name).")
    return snapshot(text, FILES, context.downloads, context.may_download, f"{context.where}.source", "dataset").absolute()


def _layout(root: Path, source: HubDataset, context: ScanContext) -> Iterator[Listed]:
    split = source.split.strip()
    base = next((place for place in (root / split, root / "data" / split) if kind_of(place) == "folder"), root)
    places = [base, root / "data", root]
    if table := next(filter(None, (usual_file(place, TABLES) for place in places)), None):
        return scan_table(MetadataTable(file=str(table), video_column=source.video_column, caption_column=source.caption_column), context)
    files = list(files_below(root))
    if rows := [file for file in files if is_rows(file)]:
        return (item for file in _of_split(rows, root, split, context) for item in scan_rows(file, root, source, context))
    if tars := [file for file in files if is_tar(file)]:
        key = source.caption_column.strip()
        return scan_tars(_of_split(tars, root, split, context), root, key, source.images, context)
    for place in places:
        if usual_file(place, VIDEO_LISTS):
            return scan_list(VideoList(folder=str(place)), context)
    return scan_folder(VideoFolder(folder=str(base), images=source.images), context)


def _of_split(files: list[Path], root: Path, split: str, context: ScanContext) -> list[Path]:
    """The files named for the split, or all if none is named for any; raises UserError naming the splits there are."""
    names = {file: set(re.split(r"[^a-z0-9]+", file.relative_to(root).as_posix().lower())) for file in files}
    wanted = [file for file in files if not split or split.lower() in names[file]]
    there = sorted({name for parts in names.values() for name in parts & set(SPLITS)})
    if not wanted and there:
        raise context.fail("split", f"'{root}' has no split '{split}'; it has {', '.join(there)}.", "Give the name of one of them.")
    return wanted or files
