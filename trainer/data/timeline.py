"""A clip's frames at the rate it is trained at, and the scenes they belong to."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ..dataset_settings import KEEP_FPS
from .probe import Probe
from .retime import exact_rate, retime


@dataclass(frozen=True)
class Timeline:
    """`source` is the file's frame that each frame shows, ascending; `scenes` cover all frames, one after the other."""

    fps: float  # frames/s
    source: tuple[int, ...]
    scenes: tuple[range, ...]
    whole: int  # frames of the clip before its duration was limited

    @property
    def longest(self) -> range:
        """The longest scene, the first of equals."""
        return max(self.scenes, key=len)

    @property
    def retimed(self) -> bool:
        """Whether frames of the file are left out or shown more than once."""
        return self.source != tuple(range(len(self.source)))


def timeline(probe: Probe, fps: float, max_duration: float, cuts: Sequence[int] = ()) -> Timeline:
    """The clip at `fps`, or each of its frames once at `KEEP_FPS`; frames that begin at `max_duration` seconds or later are left out.

    `cuts` are the file's frames that begin a new scene, ascending; 0 seconds do not limit.
    """
    if fps == KEEP_FPS:
        source, fps = list(range(len(probe.times))), probe.fps
        within = sum(time < max_duration for time in probe.times)
    else:
        source = retime(probe.times, probe.end, exact_rate(fps))
        within = math.ceil(Fraction(max_duration).limit_denominator(1000) * exact_rate(fps))
    whole = len(source)
    if max_duration:
        source = source[: max(within, 1)]
    return Timeline(fps, tuple(source), _scenes(source, cuts), whole)


def _scenes(source: Sequence[int], cuts: Sequence[int]) -> tuple[range, ...]:
    """A scene begins with the first frame that shows its cut or a later frame of the file."""
    scene_of = [bisect_right(cuts, index) for index in source]
    starts = [place for place in range(len(source)) if not place or scene_of[place] != scene_of[place - 1]]
    return tuple(range(start, stop) for start, stop in zip(starts, [*starts[1:], len(source)], strict=True))
