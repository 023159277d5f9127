"""Writes sidecar captions for the clips of folders, each as soon as it is there; a file that exists is only replaced when asked."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..errors import Problem, UserError, fail
from ..events import EventLog, Phase
from ..files import lies_in
from ..job import DatasetSettings
from ..source_settings import VideoFolder
from .content import nothing
from .decode import decode_frames
from .probe import probe
from .sources.context import ScanContext
from .sources.folder import existing_folder, look
from .sources.record import ClipRecord, Scan, UnusableClip
from .sources.scan import scan
from .sources.sidecar import current_caption, write_caption
from .sources.text_file import one_line

if TYPE_CHECKING:
    import numpy as np

Captioner = Callable[["np.ndarray"], str]  # frames of one clip in order, [F, h, w, 3] uint8, to a caption
Existing = Literal["keep", "overwrite"]
LONGEST_SIDE = 768  # px, of the frames that a captioner is shown


@dataclass(frozen=True)
class Sidecar:
    """A clip, and the file that holds its caption or will."""

    clip: ClipRecord
    file: Path

    @property
    def caption(self) -> str:
        """What the file says now; empty if there is none, or nothing in it that can be read."""
        with suppress(OSError):
            return current_caption(self.file)
        return ""


@dataclass
class Captioned:
    """What became of each clip's caption; `captions` are those their files hold now, in the order of the clips."""

    captions: list[str] = field(default_factory=list)
    written: int = 0
    kept: int = 0  # files that were there and stay as they are
    replaced: int = 0
    shared: list[str] = field(default_factory=list)  # clips whose caption file another clip of the same name has written
    failed: list[str] = field(default_factory=list)  # clips without a caption, each with the reason

    def __str__(self) -> str:
        counts = f"{self.written} captions written, {self.replaced} replaced, {self.kept} kept as they were"
        shared = [f"{name}: shares its caption file with the clip before it" for name in self.shared]
        return "\n".join([counts, *shared, *self.failed])


def sidecars(dataset: DatasetSettings, roots: Sequence[Path], check: Callable[[], None] = nothing) -> list[Sidecar]:
    """Every clip of the dataset in its order, with its caption file; only folders below `roots`, wherever links lead, are taken.

    Raises UserError naming each source that is no folder of clips or lies elsewhere, or that holds no clip.
    """
    problems = list[Problem]()
    for number, source in enumerate(dataset.sources):
        where = f"dataset.sources.{number}"
        if not isinstance(source, VideoFolder):
            found = f"'{source.location}' is no folder with sidecar captions ({source.kind})."
            problems.append(Problem(where, found, "Caption the clips of Video Folder nodes, before they are combined with others."))
            continue
        if source.captions_from in ("one file", "file name"):
            found = f"takes the captions of '{source.location}' from {source.captions_from}, not from sidecar files."
            problems.append(Problem(where, found, "Set captions_from to sidecar, so that what is written is trained with."))
            continue
        root = existing_folder(source.folder, "folder", ScanContext(where))
        tree = look(root, source.subfolders, source.images, Scan())
        folders = sorted({(root / name).parent for name in tree.clips} | {root})
        problems += [_outside(where, folder) for folder in folders if not lies_in(folder, roots)]
    if problems:
        raise UserError(problems)
    clips = scan(dataset.sources, check=check).clips
    if not clips:
        raise fail("dataset", "holds no clip to caption.", "Give a folder of clips inside ComfyUI's input folder.")
    return [Sidecar(clip, clip.sidecar) for clip in clips if clip.sidecar]  # clips of folders all have one


def readable(places: Sequence[Sidecar], check: Callable[[], None] = nothing) -> tuple[list[Sidecar], list[str]]:
    """The places whose clip can be read, and a line for each other; what was said of a clip that nobody can see is about another.

    Raises UserError if none can be read, Interrupted on cancel.
    """
    good, unread = list[Sidecar](), list[str]()
    for place in places:
        check()
        try:
            probe(place.clip.path)
            good.append(place)
        except UnusableClip as error:
            unread.append(f"{place.clip.name}: {error}. {error.cure}")
    if not good:
        raise fail("dataset", f"none of the {len(places)} clips can be read. {unread[0]}", "Put clips into the folder that can be played.")
    return good, unread


def caption_clips(
    places: Sequence[Sidecar], captioner: Captioner, log: EventLog, existing: Existing = "keep", frames: int = 8
) -> Captioned:
    """Has `captioner` look at `frames` frames of each clip that needs a caption and writes what it says, clip by clip.

    A clip that cannot be read is left without one. Raises UserError if a file cannot be written, Interrupted on cancel;
    captions written until then stay.
    """
    return _write_all(places, lambda number: captioner(frames_of(places[number].clip.path, frames, check=log.check)), log, existing)


def take_captions(places: Sequence[Sidecar], captions: Sequence[str], log: EventLog, existing: Existing = "keep") -> Captioned:
    """Writes captions made elsewhere, one per clip in order: a list, or a single text with a line for each clip.

    Raises UserError if their number is not that of the clips or a file cannot be written, Interrupted on cancel.
    """
    lines = [line for line in captions[0].splitlines() if line.strip()] if len(captions) == 1 else []
    if len(lines) == len(places):
        captions = lines
    if len(captions) != len(places):
        given = f"one text with {len(lines)} lines was" if len(lines) > 1 else f"{len(captions)} captions were"
        found = f"{given} given for {len(places)} clips that can be read."
        names = f"The first clip is '{places[0].clip.name}', the last '{places[-1].clip.name}'."
        cure = f"Give a list of one per clip, or a text with a line for each, in the order of Clips to Images. {names}"
        raise fail("captions", found, cure)
    return _write_all(places, captions.__getitem__, log, existing)


def frames_of(path: Path, count: int, longest: int = LONGEST_SIDE, check: Callable[[], None] = nothing) -> np.ndarray:
    """Frames in the middles of `count` equal parts of a clip, fewer if it has fewer: [F, h, w, 3] uint8, neither side over `longest`.

    Raises UnusableClip if it cannot be read.
    """
    import numpy as np

    clip = probe(path)
    scale = min(1.0, longest / max(clip.height, clip.width))
    height, width = max(1, round(clip.height * scale)), max(1, round(clip.width * scale))
    moments = (clip.end * (2 * part + 1) / (2 * count) for part in range(count))
    wanted = sorted({max(0, bisect_right(clip.times, moment) - 1) for moment in moments})
    return np.stack(list(decode_frames(path, clip, wanted, height, width, check)))


def _write_all(places: Sequence[Sidecar], make: Callable[[int], str], log: EventLog, existing: Existing) -> Captioned:
    """Each clip's caption by its number, written before the next is made; existing files are looked for when it is their turn."""
    log.emit(Phase("caption", "Captioning clips"))
    result, mine, done = Captioned(), dict[Path, str](), log.progress(len(places), "clips")
    for number, place in enumerate(places):
        done(number)
        result.captions.append(_write_one(place, number, make, existing, mine, result))
    done(len(places))
    return result


def _write_one(
    place: Sidecar, number: int, make: Callable[[int], str], existing: Existing, mine: dict[Path, str], result: Captioned
) -> str:
    """The caption that the clip's file holds in the end; `mine` are the files of this call."""
    if place.file in mine:
        result.shared.append(place.clip.name)
        return mine[place.file]
    if existing == "keep" and os.path.lexists(place.file):
        result.kept += 1
        return place.caption
    try:
        text = one_line(make(number))
    except UnusableClip as error:
        result.failed.append(f"{place.clip.name}: {error}. {error.cure}")
        return place.caption
    if not text:
        result.failed.append(f"{place.clip.name}: the captioner said nothing.")
        return place.caption
    there = os.path.lexists(place.file)
    if there and existing == "keep":  # written by someone while this caption was made
        result.kept += 1
        return place.caption
    if there and text == place.caption:
        result.kept += 1
    else:
        text = _write(place.file, text)
        result.replaced, result.written = result.replaced + there, result.written + (not there)
    mine[place.file] = text
    return text


def _write(file: Path, text: str) -> str:
    """Writes the caption and returns it as it is there now; raises UserError if that cannot be done."""
    try:
        return write_caption(file, text)
    except OSError as error:
        raise fail(str(file), f"cannot be written ({error.strerror}).", "Check the folder's permissions and the free space.") from None


def _outside(where: str, folder: Path) -> Problem:
    found = f"'{folder}' does not lie inside ComfyUI's input or output folder, and captions are written nowhere else."
    return Problem(where, found, "Move the folder into ComfyUI's input folder.")
