"""All sources of clips of a dataset to one list."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import Problem, UserError
from ...files import no_file
from ...source_settings import ClipSettings, ClipSource, ParquetFolder, Source
from ..content import nothing
from .caption_json import scan_caption_json
from .context import ScanContext
from .folder import scan_folder, scan_paired
from .hub import scan_hub
from .lists import scan_list
from .paths import folder_path
from .record import ClipRecord, Listed, Scan
from .table import scan_table
from .text_file import one_line, whole
from .webdataset import scan_webdataset

SCANNERS: dict[str, Callable[[Any, ScanContext], Iterator[Listed]]] = {  # by the `kind` of the settings they read
    "folder": scan_folder,
    "paired": scan_paired,
    "list": scan_list,
    "table": scan_table,
    "caption_json": scan_caption_json,
    "hub": scan_hub,
    "webdataset": scan_webdataset,
}


def scan(sources: Sequence[Source], cache: Path | None = None, may_download: bool = False, check: Callable[[], None] = nothing) -> Scan:
    """All clips of the sources, captions read; Parquet holds none. Raises UserError for every source that cannot be read.

    A clip reached twice (a folder listed twice, or inside another) is taken once, by its first listing; one that the
    same source lists twice, or holds twice in archives, is taken once with the captions of both. Below `cache`
    lie members of archives and downloaded datasets; without it, a source that needs it only gives its archives.
    """
    context = ScanContext(check=check, may_download=may_download)
    if cache is not None:
        context.unpacked, context.downloads = unpacked_below(cache), downloads_below(cache)
    problems: list[Problem] = []
    taken = _Taken()
    for number, source in enumerate(sources):
        if isinstance(source, ParquetFolder):
            continue
        context.where = f"dataset.sources.{number}"
        try:
            _take(source, context, taken)
        except UserError as error:
            problems += error.problems
    if problems:
        raise UserError(problems)
    return context.scan


def listed(source: ClipSource, context: ScanContext) -> Iterator[Listed]:
    """Every clip of a source as its format gives it, a file that is not there with its fault."""
    for item in SCANNERS[source.kind](source, context):
        context.check()
        fault = item.fault or (no_file(item.path) if item.told else "")
        yield replace(item, fault=f"{fault} ({item.told})" if fault and item.told else fault)


def unpacked_below(cache: Path) -> Path:
    """Where members of archives become files."""
    return cache.absolute() / "unpacked"


def downloads_below(cache: Path) -> Path:
    """Where hub datasets are downloaded."""
    return cache.absolute() / "downloads"


class _Taken(set[str]):
    """Files taken so far, each by the one name that it has whatever links lead to it."""

    def __init__(self) -> None:
        super().__init__()
        self._folders: dict[Path, str] = {}

    def name(self, path: Path) -> str:
        """The file's name; clips of a folder come together, so that folders are followed once."""
        if path.is_symlink():
            return os.path.normcase(os.path.realpath(path))
        if path.parent not in self._folders:
            self._folders[path.parent] = os.path.realpath(path.parent)
        return os.path.normcase(f"{self._folders[path.parent]}{os.sep}{path.name}")


def _take(source: ClipSource, context: ScanContext, taken: _Taken) -> None:
    """Adds a source's clips to the scan, but none that is `taken` already; of one it lists twice it keeps all captions."""
    again, clips = 0, context.scan.clips
    own: dict[str, int] = {}  # where this source's clips stand in the scan
    mended = 0  # captions with halves of characters
    for item in listed(source, context):
        record = _record(item, source)
        mended += sum(caption != whole(caption) for caption in item.captions)
        if item.fault:
            context.scan.skipped.append((record, item.fault))
            continue
        real = taken.name(item.path)
        if real in taken:
            again += 1
            if real in own:
                clips[own[real]] = _joined(clips[own[real]], record)
        else:
            taken.add(real)
            own[real] = len(clips)
            clips.append(record)
    place = folder_path(source.location).absolute()
    if mended:
        found = f"{mended} captions hold what is no character, as of names that are not UTF-8: each has a question mark there."
        context.notice(place, found, "Write those captions into files, or correct them.")
    if again:
        context.notice(place, f"{again} clips are listed twice and taken once.", "Repeats weighs a source more.")


def _joined(first: ClipRecord, again: ClipRecord) -> ClipRecord:
    """The first record with the captions of both, unless only one has captions of its own."""
    if "file" not in (first.origin, again.origin):
        return first
    captions = dict.fromkeys(caption for record in (first, again) if record.origin == "file" for caption in record.captions)
    return replace(first, captions=tuple(captions), origin="file")


def _record(item: Listed, source: ClipSettings) -> ClipRecord:
    """A clip's record, its name and captions of whole characters; one without captions of its own gets its source's."""
    captions = tuple(whole(caption) for caption in item.captions if caption)
    fallback = one_line(source.caption)
    origin = "file" if captions else "setting" if fallback else "none"
    captions = captions or ((fallback,) if fallback else ())
    name, edits = whole(item.name), tuple(source.caption_edits)
    return ClipRecord(item.path, name, captions, origin, source.repeats, source.weight, edits, item.sidecar)
