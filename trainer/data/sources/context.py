"""What a scan of a source needs besides its settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import Problem, UserError, fail
from ..content import nothing
from .record import Scan
from .unpack import Archive


@dataclass
class ScanContext:
    """Where the source stands in the job, what is noted on the way, and where files may be written.

    `unpacked` is the folder for members of archives; None only looks: a member's path is then its archive's.
    `downloads` is the folder of downloaded hub datasets.
    """

    where: str = "dataset.sources"
    scan: Scan = field(default_factory=Scan)
    unpacked: Path | None = None
    downloads: Path | None = None
    may_download: bool = False
    check: Callable[[], None] = nothing

    def notice(self, where: str | Path, found: str, cure: str = "") -> None:
        """Notes something to tell the user."""
        self.scan.notices.append(Problem(str(where), found, cure))

    def fail(self, setting: str, found: str, cure: str) -> UserError:
        """An error of one of the source's settings, to be raised by the caller."""
        return fail(f"{self.where}.{setting}", found, cure)

    def archive(self, path: Path) -> Archive:
        """An archive whose members become files."""
        archive = Archive(path, self.unpacked, self.check)
        if self.unpacked is not None:
            self.scan.memories.append(archive.memory)
        return archive
