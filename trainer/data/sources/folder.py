"""Folders of clips with sidecar captions (clip.mp4 + clip.txt), and walking folders for other formats."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ...errors import Problem
from ...files import kind_of, no_file, reason
from ...source_settings import PairedFolders, VideoFolder
from .context import ScanContext
from .endings import HEAD, is_clip
from .paths import folder_path
from .record import Listed, Scan
from .text_file import lines_of, one_line, read_captions, read_list, tell_encoding

CAPTION_EXTENSIONS = (".txt", ".caption")  # the first found wins


def scan_folder(source: VideoFolder, context: ScanContext) -> Iterator[Listed]:
    """Every clip of the folder; a missing or blank caption file gives none."""
    root = existing_folder(source.folder, "folder", context)
    tree = look(root, source.subfolders, source.images, context.scan)
    shared = _shared(source, context) if source.captions_from == "one file" else ()
    for name in tree.clips:
        if source.captions_from == "one file":
            yield Listed(root / name, name, shared)
        elif source.captions_from == "file name":
            yield Listed(root / name, name, (one_line(PurePosixPath(name).stem),))
        else:
            captions = tree.caption(name, context.scan, source.captions_from == "sidecar lines")
            yield Listed(root / name, name, captions, sidecar=_sidecar(tree, root, name))
    yield from _faulty(tree, root)


def scan_paired(source: PairedFolders, context: ScanContext) -> Iterator[Listed]:
    """Every clip of the one folder, captioned by the file of the same name in the other."""
    root = existing_folder(source.folder, "folder", context)
    videos = existing_folder(str(root / folder_path(source.videos)), "videos", context)
    beside = existing_folder(str(root / folder_path(source.captions)), "captions", context)
    captions, tree = look(beside, True, False, Scan(notices=context.scan.notices)), look(videos, True, source.images, context.scan)
    for name in tree.clips:
        yield Listed(videos / name, name, captions.caption(name, context.scan), sidecar=_sidecar(captions, beside, name))
    yield from _faulty(tree, videos)


def _faulty(tree: Tree, root: Path) -> Iterator[Listed]:
    """What has the name of a clip and is no file."""
    for name, fault in sorted(tree.faulty.items()):
        yield Listed(root / name, name, fault=fault)


def existing_folder(text: str, setting: str, context: ScanContext) -> Path:
    """The folder a setting names, absolute; raises UserError if it is not there."""
    path = folder_path(text)
    if not text.strip():
        raise context.fail(setting, "is empty.", "Give the folder that holds the clips.")
    if kind_of(path) == "file":
        raise context.fail(setting, f"'{path}' is a file.", f"Give its folder, '{path.parent}'.")
    if kind_of(path) != "folder":
        raise context.fail(setting, f"'{path}' does not exist.", "Give an existing folder.")
    return path.absolute()  # a relative name with a colon would be a protocol to FFmpeg


def _shared(source: VideoFolder, context: ScanContext) -> tuple[str, ...]:
    """The captions that all clips share, a line each; raises UserError if there is no such file."""
    path = folder_path(source.caption_file)
    if not source.caption_file.strip():
        raise context.fail("caption_file", "no caption file is given.", "Give the text file of captions, or set captions_from to sidecar.")
    if kind_of(path) != "file":
        raise context.fail("caption_file", f"the caption file '{path}' does not exist.", "Give the text file of captions.")
    lines = tuple(filter(None, lines_of(read_list(path, context.scan))))
    if not lines:
        context.notice(path, "holds no caption.", "Its clips count as uncaptioned.")
    return lines


@dataclass
class Tree:
    """What lies below a folder: names of clips relative to it in stable order, and caption files by the name they caption.

    `faulty` are names of clips that are no files, such as pipes and links to nothing, with what is wrong.
    """

    clips: list[str] = field(default_factory=list)
    faulty: dict[str, str] = field(default_factory=dict)
    captions: dict[str, Path] = field(default_factory=dict)

    def sidecar(self, clip: str) -> Path | None:
        """The caption file of a clip, if there is one."""
        stem = _composed(clip).rpartition(".")[0]
        keys = [stem + extension for extension in CAPTION_EXTENSIONS]
        return next((self.captions[key] for key in (*keys, *map(str.casefold, keys)) if key in self.captions), None)

    def caption(self, clip: str, scan: Scan, lines: bool = False) -> tuple[str, ...]:
        """The caption of a clip, or one of each of its file's `lines`; odd encodings and unreadable files become notices."""
        path = self.sidecar(clip)
        if path is None:
            return ()
        try:
            captions, encoding = read_captions(path, lines)
        except OSError as error:
            scan.notices.append(Problem(str(path), f"cannot be read ({reason(error)}).", "Its clip counts as uncaptioned."))
            return ()
        tell_encoding(path, encoding, scan)
        return captions


def _sidecar(tree: Tree, root: Path, clip: str) -> Path:
    """The caption file of a clip, or where it would be."""
    return tree.sidecar(clip) or (root / clip).with_suffix(CAPTION_EXTENSIONS[0])


def look(root: Path, subfolders: bool, images: bool, scan: Scan) -> Tree:
    """Clips and captions below a folder; counts every file seen by extension."""
    tree, folded = Tree(), dict[str, Path]()
    for folder, names, others in _walk(root, subfolders, _told(scan)):
        inside = "" if folder == root else f"{folder.relative_to(root).as_posix()}/"
        for name in names:
            stem, extension = os.path.splitext(name)  # noqa: PTH122 - a Path for each of many files takes long
            extension = extension.lower()
            scan.seen[extension or "(none)"] += 1
            if is_clip(extension, images, lambda folder=folder, name=name: _head(folder / name)):
                tree.clips.append(inside + name)
            elif extension in CAPTION_EXTENSIONS:
                key = _composed(inside + stem + extension)
                tree.captions[key] = folder / name
                folded.setdefault(key.casefold(), folder / name)
        for name in others:
            extension = PurePosixPath(name).suffix.lower()
            if is_clip(extension, images, lambda: None):
                tree.faulty[inside + name] = no_file(folder / name)
            elif extension in CAPTION_EXTENSIONS:
                scan.notices.append(Problem(str(folder / name), f"{no_file(folder / name)}.", "Captions are read from files only."))
    tree.clips.sort()
    tree.captions = {**folded, **tree.captions}
    return tree


def files_below(root: Path, subfolders: bool = True) -> Iterator[Path]:
    """Regular files in stable order; links are followed, each real folder once, hidden files and folders never."""
    return (folder / name for folder, names, _ in _walk(root, subfolders, None) for name in names)


def _walk(root: Path, subfolders: bool, unreadable: Callable[[OSError], None] | None) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Each folder with the names of its files, and of what is neither file nor folder."""
    visited, waiting = set[str](), [root] if kind_of(root) == "folder" else []
    while waiting:
        folder = waiting.pop()
        real = os.path.realpath(folder)
        if real in visited:
            continue
        visited.add(real)
        there: dict[str, list[str]] = {"file": [], "folder": [], "": []}
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if not entry.name.startswith("."):
                        there[kind_of(entry)].append(entry.name)
        except OSError as error:
            if unreadable:
                unreadable(error)
            continue
        yield folder, sorted(there["file"]), sorted(there[""])
        if subfolders:
            waiting += [folder / name for name in sorted(there["folder"], reverse=True) if name != "__MACOSX"]


def _told(scan: Scan) -> Callable[[OSError], None]:
    def unreadable(error: OSError) -> None:
        scan.notices.append(Problem(str(error.filename), f"cannot be looked into ({error.strerror}).", "Give it read permission."))

    return unreadable


def _composed(name: str) -> str:
    """A name with accents composed, which macOS stores apart."""
    return unicodedata.normalize("NFC", name)


def _head(path: Path) -> bytes | None:
    """A file's first bytes; None if it cannot be read."""
    try:
        with path.open("rb") as file:  # it is a regular one
            return file.read(HEAD)
    except OSError:
        return None
