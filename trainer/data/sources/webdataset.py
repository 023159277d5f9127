"""WebDataset tars: members of one name with different endings belong together (0001.mp4 + 0001.txt or 0001.json)."""

from __future__ import annotations

import json
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ...files import kind_of
from ...source_settings import WebDataset
from .context import ScanContext
from .endings import CLIP_EXTENSIONS
from .folder import files_below
from .paths import folder_path
from .record import Listed, UnusableClip
from .rows import CAPTION_COLUMNS, cell_captions
from .text_file import decoded, one_line
from .unpack import Archive

TAR_EXTENSIONS = (".tar", ".tar.gz", ".tgz")
CAPTION_KEYS = (*CAPTION_COLUMNS, "txt")
_LARGEST_TEXT = 1 << 20  # bytes


def scan_webdataset(source: WebDataset, context: ScanContext) -> Iterator[Listed]:
    """Every clip of the tars, which become files of the cache; raises UserError if there is no tar."""
    for tar in tars_of(source, context):
        yield from scan_tar(tar, source.caption_key.strip(), context)


def tars_of(source: WebDataset, context: ScanContext) -> list[Path]:
    """The tars that the setting names, absolute; raises UserError if there is none."""
    path = folder_path(source.path)
    if not source.path.strip():
        raise context.fail("path", "is empty.", "Give a tar, or a folder of tars.")
    if not path.exists():
        raise context.fail("path", f"'{path}' does not exist.", "Give a tar, or a folder of tars.")
    found = [file.absolute() for file in ([path] if kind_of(path) == "file" else files_below(path)) if is_tar(file)]
    if not found:
        raise context.fail("path", f"'{path}' is no tar and holds none.", f"Tars end in {', '.join(TAR_EXTENSIONS)}.")
    return found


def is_tar(path: Path) -> bool:
    """Whether a file's name is that of a tar."""
    return path.name.lower().endswith(TAR_EXTENSIONS)


def scan_tar(tar: Path, caption_key: str, context: ScanContext) -> Iterator[Listed]:
    """The clips of one tar with the captions that share their name; a tar that breaks off gives what comes before."""
    archive = context.archive(tar)
    clips: list[tuple[str, Path, str]] = []  # member, its file, what is wrong with it
    captions: dict[tuple[str, str], tuple[str, ...]] = {}  # by sample and key
    try:
        with tarfile.open(tar) as opened:
            for member in opened:
                if not member.isfile() or PurePosixPath(member.name).name.startswith("."):
                    continue
                sample, key = _parted(member.name)
                if f".{key.rpartition('.')[2]}" in CLIP_EXTENSIONS:
                    context.scan.seen[f".{key}"] += 1
                    clips.append((member.name, *_unpacked(opened, member, archive)))
                    if context.unpacked is None:
                        break  # one is enough to see that there are clips
                elif member.size <= _LARGEST_TEXT:
                    captions |= _captions(opened, member, sample, key, caption_key)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        context.notice(tar, f"breaks off or is damaged ({error}): {len(clips)} clips were read.", "Download it again.")
    finally:
        archive.save()
    for name, path, fault in clips:
        found = (captions.get((_parted(name)[0], key)) for key in ([caption_key] if caption_key else CAPTION_KEYS))
        yield Listed(path, name, next(filter(None, found), ()), f"{name} of {tar}", fault)


def _parted(name: str) -> tuple[str, str]:
    """A member's sample and key: what comes before and after the first dot of its last part."""
    folder, slash, last = name.rpartition("/")
    stem, _, key = last.partition(".")
    return folder + slash + stem, key.lower()


def _unpacked(opened: tarfile.TarFile, member: tarfile.TarInfo, archive: Archive) -> tuple[Path, str]:
    """A member's file, and why there is none."""
    if known := archive.known(member.name):
        return known, ""
    content = opened.extractfile(member)
    assert content is not None  # a regular file
    try:
        return archive.unpack(member.name, PurePosixPath(member.name).suffix.lower(), content), ""
    except UnusableClip as error:
        return archive.path, str(error)


def _captions(
    opened: tarfile.TarFile, member: tarfile.TarInfo, sample: str, key: str, wanted: str
) -> dict[tuple[str, str], tuple[str, ...]]:
    """The captions in a text member, or in those keys of a .json member that may hold them."""
    keys = {wanted} if wanted else set(CAPTION_KEYS)
    if key != "json" and key not in keys:
        return {}
    content = opened.extractfile(member)
    assert content is not None  # a regular file
    text = decoded(content.read())[0]
    if key != "json":
        return {(sample, key): (one_line(text),) if text.strip() else ()}
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {(sample, name): cell_captions(data[name])[0] for name in keys if name in data} if isinstance(data, dict) else {}
