"""The plan of a clip: retimed frames, bucket and windows, decided from its probe before anything is decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import fail
from ..job import Bucket, DatasetSettings, WindowSettings
from ..models.base import FamilySpec
from .buckets import automatic_bucket, automatic_size, choose_bucket, rounded_buckets
from .probe import Probe
from .retime import exact_rate, retime
from .sources.record import ClipRecord, UnusableClip
from .windows import window_starts


@dataclass(frozen=True)
class ClipPlan:
    """How one clip becomes examples: `indices` are its source frames in order, `starts` the first frame of each window."""

    record: ClipRecord
    probe: Probe
    retimed: int  # frames of the whole clip at the target rate
    indices: tuple[int, ...]  # source frame of each kept target frame
    example: Bucket  # size of one example: the window, or the whole bucket
    starts: tuple[int, ...]


@dataclass(frozen=True)
class Shaper:
    """The dataset's settings on the family's grid; plans each clip."""

    spec: FamilySpec
    fps: float
    buckets: tuple[Bucket, ...]
    windows: WindowSettings | None

    def plan(self, record: ClipRecord, probe: Probe) -> ClipPlan:
        """The clip's plan; raises UnusableClip if it is too short, saying what would fit."""
        source = retime(probe.times, probe.end, exact_rate(self.fps))
        if self.windows is not None:
            return self._windowed(record, probe, source, self.windows)
        size = probe.height, probe.width
        bucket = choose_bucket(self.buckets, len(source), *size, False) if self.buckets else automatic_bucket(self.spec, len(source), *size)
        if bucket is None:
            least = min((bucket.frames for bucket in self.buckets), default=self.spec.frame_rule.offset)
            length = self._length(probe, source)
            raise UnusableClip(f"{length}, shorter than every bucket (least {least} frames); {self._largest(len(source))}")
        return ClipPlan(record, probe, len(source), tuple(source[: bucket.frames]), bucket, (0,))

    def _windowed(self, record: ClipRecord, probe: Probe, source: list[int], windows: WindowSettings) -> ClipPlan:
        frames, height, width = len(source), *automatic_size(self.spec, probe.height, probe.width)
        if self.buckets:
            bucket = choose_bucket(self.buckets, frames, probe.height, probe.width, True)
            assert bucket is not None  # with windows every bucket is open to every clip
            frames, height, width = min(frames, bucket.frames), bucket.height, bucket.width
        starts = window_starts(frames, windows.size, windows.stride)
        if not starts:
            raise UnusableClip(f"{self._length(probe, source)}, shorter than the window of {windows.size}; {self._largest(frames)}")
        return ClipPlan(record, probe, len(source), tuple(source[:frames]), Bucket(frames=windows.size, height=height, width=width), starts)

    def _length(self, probe: Probe, source: list[int]) -> str:
        return f"{len(source)} frames at {self.fps:g} frames/s ({len(probe.times)} at {probe.fps:.3f} in the file)"

    def _largest(self, frames: int) -> str:
        largest = self.spec.frame_rule.floor(frames)
        return f"{largest} is the largest that fits" if largest <= frames else f"the model needs at least {largest}"


def shaper(settings: DatasetSettings, spec: FamilySpec) -> tuple[Shaper, list[str]]:
    """The settings on the family's grid, with a line for each rounding; raises UserError if no bucket holds a window."""
    windows = settings.windows
    buckets, problems = rounded_buckets(settings.buckets, spec, windows is not None)
    notices = [str(problem) for problem in problems]
    if windows is not None:
        size = spec.frame_rule.floor(windows.size)
        if size != windows.size:
            notices.append(f"dataset.windows.size: {windows.size} frames were rounded to {size}: the model takes {spec.frame_rule}.")
        windows = windows.model_copy(update={"size": size})
        buckets = _holding(buckets, size, spec)
    return Shaper(spec, settings.fps or spec.fps, tuple(buckets), windows), notices


def _holding(buckets: Sequence[Bucket], size: int, spec: FamilySpec) -> list[Bucket]:
    """The buckets a window fits into."""
    holding = [bucket for bucket in buckets if bucket.frames >= size]
    if buckets and not holding:
        longest = max(bucket.frames for bucket in buckets)
        cure = f"Use a window of {spec.frame_rule.floor(longest)} or longer buckets."
        raise fail("dataset.windows.size", f"a window of {size} frames is longer than every bucket (longest {longest}).", cure)
    return holding
