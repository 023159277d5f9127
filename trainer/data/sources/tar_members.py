"""What each member of a WebDataset tar is: a clip, a caption, or left out for a reason that is told."""

from __future__ import annotations

import tarfile
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from .context import ScanContext
from .endings import HEAD, PICTURE_EXTENSIONS, is_video
from .unpack import BROKEN

LARGEST_TEXT = 1 << 20  # bytes
_NAMED = 3  # members named in a notice
BESIDE_VIDEO = "are left out: pictures beside a video of their sample, which is the clip"
STILL = "are left out: still images"
OTHER = "are left out: neither clips nor captions"
NO_CLIP = "are left out: captions of no clip"
LONG = f"are left out: longer than {LARGEST_TEXT >> 20} MiB, which no caption is"
REPLACED = "are left out: a later member has the same name"
HIDDEN = "are left out: hidden or system files"
SPECIAL = "are left out: links or devices"
NOT_UTF8 = "are not UTF-8 and were read as Windows-1252"
NOT_JSON = "are not JSON objects and give no caption"
CURES = {
    STILL: "Set Images to take them as clips of one frame.",
    NO_CLIP: "A caption has the name of its clip up to the first dot.",
    SPECIAL: "Pack the files themselves.",
    NOT_UTF8: "Save them as UTF-8 if letters look wrong.",
    NOT_JSON: 'Write an object such as {"caption": "…"}.',
}


class BrokenTar(Exception):
    """A tar breaks off or is damaged; the text says how."""


@contextmanager
def reading() -> Iterator[None]:
    """Whatever tarfile raises in the block, where nothing else is done, is a BrokenTar."""
    try:
        yield
    except BROKEN as error:
        raise BrokenTar(str(error) or type(error).__name__) from error


@dataclass
class Told:
    """Members by what is to be told of them; a notice each, with their number and the names of the first."""

    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    names: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, what: str, name: str) -> None:
        """One member more of which this is to be told."""
        self.counts[what] += 1
        if len(self.names[what]) < _NAMED:
            self.names[what].append(name)

    def tell(self, place: Path, context: ScanContext) -> None:
        """Notes all of it."""
        for what, count in self.counts.items():
            names = ", ".join(self.names[what]) + (", …" if count > _NAMED else "")
            context.notice(place, f"{count} members {what} ({names}).", CURES.get(what, ""))


@dataclass(frozen=True)
class Member:
    """A file in a tar: its sample and key are what comes before and after the first dot of its name."""

    info: tarfile.TarInfo
    sample: str
    key: str
    video: bool

    @property
    def name(self) -> str:
        """Its full name."""
        return self.info.name

    @property
    def ending(self) -> str:
        """What comes after the last dot, with the dot; empty without one."""
        return _ending(self.key)


@dataclass
class TarIndex:
    """The members of one tar by name; of several of one name the last counts, as when a tar is unpacked."""

    images: bool
    caption_keys: Collection[str]
    told: Told
    members: dict[str, Member] = field(default_factory=dict)

    def read(self, opened: tarfile.TarFile, context: ScanContext) -> Iterator[Member]:
        """Takes in the members one by one; raises BrokenTar where the tar breaks off."""
        while True:
            context.check()
            with reading():
                info = opened.next()
            if info is None:
                return
            if info.isdir():
                continue
            sample, key = parted(info.name)
            context.scan.seen[_ending(key) or "(none)"] += 1
            if not info.isreg():
                self.told.add(SPECIAL, info.name)
            elif _hidden(info.name):
                self.told.add(HIDDEN, info.name)
            else:
                if self.members.pop(info.name, None):
                    self.told.add(REPLACED, info.name)
                member = Member(info, sample, key, is_video(_ending(key), lambda info=info: _head(opened, info)))
                self.members[info.name] = member
                yield member

    def is_clip(self, member: Member) -> bool:
        """Whether it would be a clip if no video shared its sample."""
        return member.video or (self.images and member.ending in PICTURE_EXTENSIONS)

    def wanted(self) -> list[Member]:
        """Clips and the captions that belong to one, in the tar's order; all others are told as left out."""
        filmed = {member.sample for member in self.members.values() if member.video}
        pictured = {member.sample for member in self.members.values() if self.is_clip(member)}
        kept = list[Member]()
        for member in self.members.values():
            if why := self._left_out(member, filmed, pictured):
                self.told.add(why, member.name)
            else:
                kept.append(member)
        return kept

    def _left_out(self, member: Member, filmed: set[str], pictured: set[str]) -> str:
        """Why a member is not read, empty if it is; samples that have a video are `filmed`, those with a clip `pictured`."""
        if member.video:
            return ""
        if member.ending in PICTURE_EXTENSIONS:
            return BESIDE_VIDEO if member.sample in filmed else "" if self.images else STILL
        if member.key not in self.caption_keys:
            return OTHER
        if member.sample not in pictured:
            return NO_CLIP
        return LONG if member.info.size > LARGEST_TEXT else ""


def ends_well(opened: tarfile.TarFile) -> bool:
    """Whether the block of zeros that ends every tar follows its last member: tarfile itself takes a cut or bad header for the end.

    Raises BrokenTar.
    """
    assert opened.fileobj is not None  # it was opened by name
    with reading():
        opened.fileobj.seek(opened.offset)
        return opened.fileobj.read(tarfile.BLOCKSIZE) == bytes(tarfile.BLOCKSIZE)


def parted(name: str) -> tuple[str, str]:
    """A member's sample and key: what comes before and after the first dot of its last part, the key in lower case."""
    folder, slash, last = name.rpartition("/")
    stem, _, key = last.partition(".")
    return folder + slash + stem, key.lower()


def _ending(key: str) -> str:
    return f".{key.rpartition('.')[2]}" if key else ""


def _hidden(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return "__MACOSX" in parts or any(part.startswith(".") and part != ".." for part in parts)


def _head(opened: tarfile.TarFile, info: tarfile.TarInfo) -> bytes | None:
    """A member's first bytes; None where the tar breaks off in it."""
    try:
        return member_bytes(opened, info, HEAD)
    except BrokenTar:
        return None


def member_bytes(opened: tarfile.TarFile, info: tarfile.TarInfo, count: int = -1) -> bytes:
    """The first bytes of a regular member, or all; raises BrokenTar."""
    with reading():
        content = opened.extractfile(info)
        assert content is not None  # a regular file
        return content.read(count)
