"""Telling what happens to the clips: as notices while they are read, and in the report for later."""

from __future__ import annotations

from dataclasses import dataclass

from ..events import EventLog
from .report import ClipReport, DatasetReport
from .sources.record import UnusableClip

_NOTICES = 20  # clips or rows named one by one in notices; the report names all
_SHORTENED = "To use more of them: longer buckets, a frame sampling of chunk or slide, FramePack windows, or shorter clips."
_ALIKE = "Keep one of each, unless it is meant to count more than other clips."


@dataclass
class Teller:
    """Tells the user what happens to the clips, or rows of Parquet, and keeps it for the report."""

    log: EventLog
    report: DatasetReport
    skips: int = 0

    def notice(self, text: str, where: str = "") -> None:
        """A notice that the report keeps too."""
        self.report.notices.append(f"{where}: {text}" if where else text)
        self.log.notice(text, where)

    def tell_skipped(self) -> None:
        """Tells of the clips that the report has as skipped while they were planned."""
        for clip in self.report.skipped:
            self.skip(clip.path, clip.skipped)

    def drop(self, clip: ClipReport, error: UnusableClip) -> None:
        """A planned clip is not used after all."""
        clip.skipped, clip.cure = str(error), error.cure
        self.skip(clip.path, str(error))

    def skip(self, where: str, reason: str) -> None:
        """What lies there is left out; after many, only the report says so."""
        self.skips += 1
        if self.skips <= _NOTICES:
            self.log.notice(f"skipped: {reason}", where)

    def count_skips(self, of: str, where: str = "") -> None:
        """A notice on the clips or rows that were not named one by one."""
        if self.skips > _NOTICES:
            self.log.notice(f"{self.skips - _NOTICES} more {of} are skipped; the dataset report says why.", where)

    def summary(self) -> None:
        """Notices about the dataset as a whole."""
        kept = self.report.kept
        self.count_skips("clips")
        if uncaptioned := sum(clip.caption == "none" for clip in kept):
            self.notice(f"{uncaptioned} of {len(kept)} clips have no caption and are trained with trigger and suffix alone, if any.")
        self._tell_spans()
        if interlaced := sum(clip.interlaced for clip in kept):
            self.notice(f"{interlaced} of {len(kept)} clips are interlaced and are deinterlaced (bwdif), at one frame per two fields.")
        if cut := sum(clip.used_frames * 2 < clip.retimed_frames for clip in kept):
            found = f"{cut} of {len(kept)} clips are used for less than half of their length: their bucket or a limit is that much shorter."
            self.notice(f"{found} {_SHORTENED}")
        if enlarged := sum(clip.enlarged for clip in kept):
            self.notice(f"{enlarged} of {len(kept)} clips are smaller than their bucket and are enlarged.")
        if own := sum(clip.own_size for clip in kept):
            self.notice(f"{own} of {len(kept)} clips are smaller than every bucket and are trained at the largest size that they fill.")
        if cuts := sum(bool(clip.scene_cuts) for clip in kept):
            self.notice(f"{cuts} of {len(kept)} clips have scene cuts; no example crosses one.")
        for groups, what in ((self.report.duplicates, "are the same file"), (self.report.alike, "have other bytes but look the same")):
            if groups:
                clips = len({name for group in groups for name in group})
                found = f"{clips} clips {what} as others, such as {' and '.join(groups[0][:2])}; the dataset report names all."
                self.notice(f"{found} {_ALIKE}")

    def _tell_spans(self) -> None:
        """Notices about captions of spans: each clip of which something cannot be used, and how many spans no example shows."""
        faulty, unused = ([clip for clip in self.report.kept if getattr(clip, name)] for name in ("caption_faults", "unused_spans"))
        for clip in faulty[:_NOTICES]:
            self.notice(f"in its caption {'; '.join(clip.caption_faults)}.", clip.path)
        if more := faulty[_NOTICES:]:
            self.notice(f"{len(more)} more captions hold what seems to be a span of time and is none; the dataset report says where.")
        if unused:
            count, such = sum(len(clip.unused_spans) for clip in unused), f"{unused[0].unused_spans[0]} of {unused[0].name}"
            why = "they lie behind what is used of the clip, or other text covers more of every example"
            self.notice(f"{count} captioned spans of {len(unused)} clips caption no example, such as {such}: {why}.")
