"""Folders of clips with sidecar captions (clip.mp4 + clip.txt)."""

from __future__ import annotations

import codecs
import os
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...errors import Problem, UserError
from ...files import kind_of
from ...job import VideoFolder
from .record import ClipRecord, Scan

CLIP_EXTENSIONS = (".mp4", ".mov", ".mkv", ".webm", ".avi", ".m4v", ".gif")
CAPTION_EXTENSIONS = (".txt", ".caption")  # the first found wins
_BOMS = (  # UTF-32 before UTF-16, whose mark it begins with
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_QUOTES = ('""', "''", "“”", "‘’")


def folder_path(text: str) -> Path:
    """The folder a user typed or pasted: spaces and quotes around it are dropped, ~ is the home folder."""
    text = text.strip()
    while len(text) >= 2 and text[0] + text[-1] in _QUOTES:
        text = text[1:-1].strip()
    try:
        return Path(text).expanduser()
    except RuntimeError:  # "~name" of no user here is a name like any other
        return Path(text)


def read_caption(path: Path) -> tuple[str, str]:
    """The caption in a file and its encoding: by byte order mark, else UTF-8, else Windows-1252; line breaks become spaces."""
    data = path.read_bytes()
    text, encoding = _decode(data)
    return " ".join(text.split()), encoding


def _decode(data: bytes) -> tuple[str, str]:
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return data.decode(encoding, errors="replace"), encoding
    for encoding in ("utf-8", "cp1252"):
        try:
            return data.decode(encoding), encoding
        except UnicodeDecodeError:
            continue
    return data.decode("latin-1"), "latin-1"


def scan_folders(folders: Sequence[VideoFolder]) -> Scan:
    """All clips of the folders, captions read; raises UserError for every folder that is not there.

    A clip reached twice (a folder listed twice, or inside another) is taken once, by its first listing.
    """
    problems = [problem for n, folder in enumerate(folders) if (problem := _check(folder, f"dataset.folders.{n}.folder"))]
    if problems:
        raise UserError(problems)
    scan, taken = Scan(), set[str]()
    for folder in folders:
        root = folder_path(folder.folder).absolute()  # a relative name with a colon would be a protocol to FFmpeg
        again = 0
        for path, sidecar in _pairs(root, folder.subfolders, scan):
            real = os.path.normcase(os.path.realpath(path))
            if real in taken:
                again += 1
                continue
            taken.add(real)
            scan.clips.append(_record(root, path, sidecar, folder, scan))
        if again:
            scan.notices.append(Problem(str(root), f"{again} clips are listed twice and taken once.", "Repeats weighs a folder more."))
    return scan


def _check(folder: VideoFolder, where: str) -> Problem | None:
    path = folder_path(folder.folder)
    if not folder.folder.strip():
        return Problem(where, "is empty.", "Give the folder that holds the clips.")
    if kind_of(path) == "file":
        return Problem(where, f"'{path}' is a file.", f"Give its folder, '{path.parent}'.")
    if kind_of(path) != "folder":
        return Problem(where, f"'{path}' does not exist.", "Give the folder that holds the clips.")
    return None


def _pairs(root: Path, subfolders: bool, scan: Scan) -> Iterable[tuple[Path, Path | None]]:
    """Clips with their caption files, sorted by path; counts every file seen by extension."""
    found: list[tuple[Path, Path | None]] = []
    for folder, names in _walk(root, subfolders, scan):
        visible = [name for name in names if not name.startswith(".")]
        scan.seen.update(Path(name).suffix.lower() or "(none)" for name in visible)
        captions = {_sidecar_key(name): folder / name for name in visible if Path(name).suffix.lower() in CAPTION_EXTENSIONS}
        for name in visible:
            if Path(name).suffix.lower() in CLIP_EXTENSIONS:
                keys = [_sidecar_key(Path(name).stem + extension) for extension in CAPTION_EXTENSIONS]
                found.append((folder / name, next((captions[key] for key in keys if key in captions), None)))
    return sorted(found, key=lambda pair: pair[0].relative_to(root).as_posix())


def _walk(root: Path, subfolders: bool, scan: Scan) -> Iterable[tuple[Path, list[str]]]:
    """Folders and their file names; links are followed, each real folder once, hidden folders never."""

    def unreadable(error: OSError) -> None:
        scan.notices.append(Problem(str(error.filename), f"cannot be looked into ({error.strerror}).", "Give it read permission."))

    visited = set[str]()
    for folder, inner, names in os.walk(root, onerror=unreadable, followlinks=True):
        real = os.path.realpath(folder)
        if real in visited:
            inner.clear()
            continue
        visited.add(real)
        inner[:] = sorted(name for name in inner if not name.startswith(".") and name != "__MACOSX") if subfolders else []
        yield Path(folder), sorted(names)


def _sidecar_key(name: str) -> str:
    """File name with its extension in lower case and accents composed (macOS stores them apart)."""
    path = Path(unicodedata.normalize("NFC", name))
    return path.stem + path.suffix.lower()


def _record(root: Path, path: Path, sidecar: Path | None, folder: VideoFolder, scan: Scan) -> ClipRecord:
    """A clip's record; a missing or blank caption file gives the folder's caption."""
    name = path.relative_to(root).as_posix()
    if sidecar is not None and (caption := _sidecar_caption(sidecar, scan)):
        return ClipRecord(path, name, caption, "file", folder.repeats)
    caption = folder.caption.strip()
    return ClipRecord(path, name, caption, "setting" if caption else "none", folder.repeats)


def _sidecar_caption(path: Path, scan: Scan) -> str:
    """The caption in a file, empty if there is none; odd encodings and unreadable files become notices."""
    try:
        caption, encoding = read_caption(path)
    except OSError as error:
        scan.notices.append(Problem(str(path), f"cannot be read ({error.strerror}).", "Its clip counts as uncaptioned."))
        return ""
    if encoding in ("cp1252", "latin-1"):
        scan.notices.append(Problem(str(path), "is not UTF-8 and was read as Windows-1252.", "Save it as UTF-8 if letters look wrong."))
    return caption
