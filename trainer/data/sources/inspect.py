"""What can be told of a source before a run: whether it can be read, and what would show that it changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ...errors import UserError
from ...files import kind_of, regular
from ...hub import HUB_ID
from ...source_settings import CaptionJson, HubDataset, MetadataTable, PairedFolders, ParquetFolder, Source, VideoFolder, VideoList
from ..parquet.read import foreign_columns, parquet_files
from .context import ScanContext
from .endings import CLIP_EXTENSIONS
from .folder import files_below
from .paths import folder_path
from .scan import downloads_below, listed


def complaint(source: Source, cache: Path, may_download: bool) -> str:
    """What is wrong with a source, found without unpacking or downloading anything; empty if nothing is."""
    if isinstance(source, HubDataset) and may_download and HUB_ID.fullmatch(source.source.strip()):
        return ""
    try:
        if isinstance(source, ParquetFolder):
            return _parquet_complaint(source)
        if next(listed(source, ScanContext(downloads=downloads_below(cache))), None) is None:
            return f"'{source.location}' holds no video. Known endings: {', '.join(CLIP_EXTENSIONS)}."
    except UserError as error:
        return " ".join(f"{problem.found} {problem.cure}" for problem in error.problems)
    return ""


def _parquet_complaint(source: ParquetFolder) -> str:
    """What is wrong with Parquet files, by the first of them; raises UserError if there is none."""
    if not source.folder.strip():
        return "is empty. Give the folder that holds the Parquet files."
    first = parquet_files(folder_path(source.folder))[0]
    columns = foreign_columns(first)
    return f"'{first}' is not FastVideo's: its columns are {columns}. Hub Dataset reads tables of videos and captions." if columns else ""


def state(source: Source) -> list[tuple[str, int, int]]:
    """Path, size and modification time of every file the source is made of; of a hub id, none."""
    return state_of(_files(source))


def state_of(files: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Path, size and modification time of those of the files that are there, of regular ones."""
    found = []
    for path in sorted(set(files)):
        with suppress(OSError):  # gone since it was listed
            stat = regular(path)
            found.append((str(path), stat.st_size, stat.st_mtime_ns))
    return found


def _files(source: Source) -> Iterator[Path]:
    place = folder_path(source.location)
    if isinstance(source, PairedFolders):
        for folder in (source.videos, source.captions):
            yield from files_below(place / folder_path(folder))
        return
    lists = isinstance(source, (VideoList, MetadataTable, CaptionJson))
    inner = source.subfolders if isinstance(source, VideoFolder) else not lists
    yield from files_below(place, inner) if kind_of(place) == "folder" else [place]
    if isinstance(source, VideoFolder) and source.captions_from == "one file":
        yield folder_path(source.caption_file)
    if isinstance(source, VideoList):  # lists may lie anywhere
        yield from (place / folder_path(name) for name in (source.videos, source.captions) if name.strip())
    if lists:
        with suppress(UserError):  # which marks the node
            yield from (item.path for item in listed(source, ScanContext()))
