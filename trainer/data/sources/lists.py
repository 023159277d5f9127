"""Two text files, line by line: videos.txt names the clips, prompts.txt has their captions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from ...errors import fail
from ...files import kind_of
from ...source_files import CAPTION_LISTS, VIDEO_LISTS
from ...source_settings import VideoList
from .context import ScanContext
from .folder import existing_folder
from .paths import folder_path, listed_path, usual_file
from .record import Listed
from .text_file import lines_of, read_list


def scan_list(source: VideoList, context: ScanContext) -> Iterator[Listed]:
    """The clip of each line with the caption of the same line; raises UserError if the counts differ."""
    root = existing_folder(source.folder, "folder", context)
    videos = _list(root, source.videos, VIDEO_LISTS, "videos", context)
    if videos is None:
        raise context.fail("videos", f"'{root}' holds no {' or '.join(VIDEO_LISTS)}.", "Give the name of the list of clips.")
    captions = _list(root, source.captions, CAPTION_LISTS, "captions", context)
    clips, texts = _lines(videos, context), _lines(captions, context) if captions else []
    if captions is None:
        context.notice(videos, f"has no captions beside it ({', '.join(CAPTION_LISTS)}).", "Its clips count as uncaptioned.")
    elif len(clips) != len(texts):
        found = f"has {len(clips)} lines and {captions.name} has {len(texts)}."
        raise fail(str(videos), found, "Each clip needs one line in both; an empty line in the captions is a clip without.")
    for number, (clip, text) in enumerate(zip_longest(clips, texts, fillvalue=""), start=1):
        if clip or text:
            path, fault = listed_path(clip, videos.parent)
            yield Listed(path, clip or f"{videos.name} line {number}", (text,) if text else (), f"line {number} of {videos}", fault)


def _list(root: Path, name: str, usual: Sequence[str], setting: str, context: ScanContext) -> Path | None:
    """The list a setting names, or the first of the usual ones; None if there is none. Raises UserError for a named one."""
    if not name.strip():
        return usual_file(root, usual)
    path = root / folder_path(name)
    if kind_of(path) != "file":
        raise context.fail(setting, f"'{path}' does not exist.", "Give a text file, or leave it empty to find the usual names.")
    return path


def _lines(path: Path, context: ScanContext) -> list[str]:
    """The lines without the empty ones at the end, which editors leave."""
    lines = lines_of(read_list(path, context.scan))
    while lines and not lines[-1]:
        lines.pop()
    return lines
