"""Retiming by presentation time: which source frame each frame of the target rate shows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache


@lru_cache(maxsize=64)  # asked for each clip
def exact_rate(fps: float) -> Fraction:
    """A frame rate as a fraction: 16.0 -> 16, 23.976023976 -> 24000/1001."""
    return Fraction(fps).limit_denominator(1001)


def frame_count(times: Sequence[Fraction], end: Fraction, fps: Fraction) -> int:
    """Target frames of a clip: middles of their intervals, (k + 1/2) / fps, that lie before its end; at least one."""
    length = end - times[0]
    unit = 2 * length.denominator * fps.denominator  # in whole numbers: fractions are slow over thousands of clips
    return max(1, -((length.denominator * fps.denominator - 2 * length.numerator * fps.numerator) // unit))


def retime(times: Sequence[Fraction], end: Fraction, fps: Fraction, most: int | None = None) -> list[int]:
    """Source index for each target frame k, or the first `most`: the frame on screen up to the middle of its interval, (k + 1/2) / fps.

    `times` are the source's presentation times in seconds, ascending, `end` when its last frame leaves the screen.
    There are `frame_count` target frames. Equal rates give 0, 1, 2, …; higher source rates drop frames, lower ones repeat
    them, and a frame held long is repeated while it is held.
    """
    count = frame_count(times, end, fps)
    count = count if most is None else min(count, max(most, 1))
    unit = math.lcm(*(time.denominator for time in times))
    ticks = [time.numerator * (unit // time.denominator) * 2 * fps.numerator for time in times]
    step = unit * fps.denominator  # half a target frame
    chosen = list[int]()
    for index, tick in enumerate(ticks[1:]):
        until = min(((tick - ticks[0]) // step + 1) // 2, count)  # target frames whose middle is no later than the next frame
        chosen += [index] * (until - len(chosen))
    return chosen + [len(ticks) - 1] * (count - len(chosen))


def constant_rate(times: Sequence[Fraction], tick: Fraction, rates: Iterable[Fraction]) -> Fraction | None:
    """The rate among `rates` that all times follow, or None for a variable frame rate.

    Containers that store whole milliseconds jitter around the true times; retiming needs the true ones. So times may be
    off by one tick, but by no more than an eighth of a frame where ticks are coarse.
    """
    for rate in rates:
        jitter = min(tick, 1 / (8 * rate))
        if all(abs(time - times[0] - index / rate) <= jitter for index, time in enumerate(times)):
            return rate
    return None
