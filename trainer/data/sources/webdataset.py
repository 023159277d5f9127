"""WebDataset tars: members of one name with different endings are a sample (0001.mp4 + 0001.txt or 0001.json).

A video, or a WebP that moves, is a clip. A still picture is one, of one frame, where images are asked for and its sample
has no video. Several videos of a sample, or several pictures, are a clip each, with the sample's captions. Every other
member is a caption of a clip, or is told as left out with the reason.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from ...files import kind_of
from ...source_files import TAR_EXTENSIONS, is_tar
from ...source_settings import WebDataset
from .context import ScanContext
from .folder import files_below
from .paths import folder_path
from .record import Listed, UnusableClip
from .rows import CAPTION_COLUMNS, cell_captions
from .tar_members import NOT_JSON, NOT_UTF8, BrokenTar, Member, TarIndex, Told, ends_well, member_bytes, reading
from .text_file import decoded, is_odd, one_line
from .unpack import Archive

CAPTION_KEYS = (*CAPTION_COLUMNS, "txt")
Captions = dict[tuple[str, str], tuple[str, ...]]  # by sample and key


def scan_webdataset(source: WebDataset, context: ScanContext) -> Iterator[Listed]:
    """Every clip of the tars, which become files of the cache; raises UserError if there is no tar."""
    yield from scan_tars(tars_of(source, context), folder_path(source.path), source.caption_key.strip(), source.images, context)


def tars_of(source: WebDataset, context: ScanContext) -> list[Path]:
    """The tars that the setting names, absolute; raises UserError if there is none."""
    path = folder_path(source.path)
    if not source.path.strip():
        raise context.fail("path", "is empty.", "Give a tar, or a folder of tars.")
    if not kind_of(path):
        raise context.fail("path", f"'{path}' does not exist.", "Give a tar, or a folder of tars.")
    found = [file.absolute() for file in ([path] if kind_of(path) == "file" else files_below(path)) if is_tar(file)]
    if not found:
        raise context.fail("path", f"'{path}' is no tar and holds none.", f"Tars end in {', '.join(TAR_EXTENSIONS)}.")
    return found


def scan_tars(tars: Sequence[Path], place: Path, caption_key: str, images: bool, context: ScanContext) -> Iterator[Listed]:
    """The clips of the tars with their captions; what else lies in them is told of `place`, all tars together."""
    told = Told()
    for tar in tars:
        yield from _scan_tar(tar, caption_key, images, context, told)
    if context.unpacked is not None:
        told.tell(place, context)


def _scan_tar(tar: Path, wanted: str, images: bool, context: ScanContext, told: Told) -> Iterator[Listed]:
    """The clips of one tar with the captions of their samples; a tar that breaks off gives what comes before."""
    archive, keys = context.archive(tar), [wanted] if wanted else list(CAPTION_KEYS)
    index, clips, captions = TarIndex(images, {*keys, "json"}, told), list[tuple[Member, Path, str]](), Captions()
    try:
        with _opened(tar) as opened:
            fault = _indexed(opened, index, context)
            for member in index.wanted():
                if index.is_clip(member):
                    clips.append((member, *_unpacked(opened, member.info, archive)))
                else:
                    captions |= _captions(opened, member, keys, told)
    except BrokenTar as error:
        fault = str(error)
    finally:
        archive.save()
    if fault:
        context.notice(tar, f"breaks off or is damaged ({fault}): {len(clips)} clips were read.", "Download it again.")
    for member, path, wrong in clips:
        own = next(filter(None, (captions.get((member.sample, key)) for key in keys)), ())
        yield Listed(path, member.name, own, f"{member.name} of {tar}", wrong)


def _opened(tar: Path) -> tarfile.TarFile:
    with reading():
        return tarfile.open(tar)


def _indexed(opened: tarfile.TarFile, index: TarIndex, context: ScanContext) -> str:
    """Reads the tar's members into the index; what is wrong where it breaks off, empty if nothing is."""
    try:
        for member in index.read(opened, context):
            if context.unpacked is None and index.is_clip(member):
                break  # one is enough to see that there are clips
        else:
            return "" if ends_well(opened) else "its end is missing"
    except BrokenTar as error:
        return str(error)
    return ""


def _unpacked(opened: tarfile.TarFile, member: tarfile.TarInfo, archive: Archive) -> tuple[Path, str]:
    """A member's file, and why there is none."""
    if known := archive.known(member.name):
        return known, ""
    with reading():
        content = opened.extractfile(member)
    assert content is not None  # a regular file
    try:
        return archive.unpack(member.name, PurePosixPath(member.name).suffix.lower(), content), ""
    except UnusableClip as error:
        return archive.path, str(error)


def _captions(opened: tarfile.TarFile, member: Member, keys: Sequence[str], told: Told) -> Captions:
    """The captions in a text member, or in those keys of a .json member that may hold them."""
    text, encoding = decoded(member_bytes(opened, member.info))
    if is_odd(encoding):
        told.add(NOT_UTF8, member.name)
    if member.key != "json":
        return {(member.sample, member.key): (one_line(text),) if text.strip() else ()}
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        told.add(NOT_JSON, member.name)
        return {}
    return {(member.sample, name): cell_captions(data[name])[0] for name in keys if name in data}
