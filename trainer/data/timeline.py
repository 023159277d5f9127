"""A clip's frames at the rate it is trained at, and the scenes they belong to."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ..dataset_settings import KEEP_FPS
from ..frame_settings import LONGEST_CLIP
from .probe import Probe
from .retime import exact_rate, frame_count, retime
from .sources.record import UnusableClip


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

    `cuts` are the file's frames that begin a new scene, ascending; 0 seconds do not limit. Raises UnusableClip for what
    lasts longer than any limit that can be set: no clip does, but one timestamp that is wrong makes it seem so.
    """
    if (length := min(probe.end, max_duration or probe.end)) > LONGEST_CLIP:
        why = f"would last {float(length) / 3600:,.0f} hours by its timestamps, of which one must be wrong"
        raise UnusableClip(why, "Convert the file, or set dataset.max_duration.")
    if fps == KEEP_FPS:
        whole, fps = len(probe.times), probe.fps
        within = sum(time < max_duration for time in probe.times) if max_duration else whole
        source = list(range(max(within, 1)))
    else:
        rate = exact_rate(fps)
        whole = frame_count(probe.times, probe.end, rate)
        within = math.ceil(Fraction(max_duration).limit_denominator(1000) * rate) if max_duration else whole
        source = retime(probe.times, probe.end, rate, within)
    return Timeline(fps, tuple(source), _scenes(source, cuts), whole)


def _scenes(source: Sequence[int], cuts: Sequence[int]) -> tuple[range, ...]:
    """A scene begins with the first frame that shows its cut or a later frame of the file."""
    if not cuts:
        return (range(len(source)),)
    scene_of = [bisect_right(cuts, index) for index in source]
    starts = [place for place in range(len(source)) if not place or scene_of[place] != scene_of[place - 1]]
    return tuple(range(start, stop) for start, stop in zip(starts, [*starts[1:], len(source)], strict=True))
