"""Retiming by presentation time: which source frame each frame of the target rate shows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction


def exact_rate(fps: float) -> Fraction:
    """A frame rate as a fraction: 16.0 -> 16, 23.976023976 -> 24000/1001."""
    return Fraction(fps).limit_denominator(1001)


def retime(times: Sequence[Fraction], end: Fraction, fps: Fraction) -> list[int]:
    """Source index for each target frame k: the frame on screen up to the middle of its interval, (k + 1/2) / fps.

    `times` are the source's presentation times in seconds, ascending, `end` when its last frame leaves the screen.
    There are as many target frames as such middles within the clip, at least one. Equal rates give 0, 1, 2, …;
    higher source rates drop frames, lower ones repeat them, and a frame held long is repeated while it is held.
    """
    count = max(1, math.ceil((end - times[0]) * fps - Fraction(1, 2)))
    unit = math.lcm(*(time.denominator for time in times))  # in whole numbers: fractions are slow over thousands of clips
    ticks = [time.numerator * (unit // time.denominator) * 2 * fps.numerator for time in times]
    step = unit * fps.denominator  # half a target frame
    chosen, index = [], 0
    for k in range(count):
        middle = ticks[0] + (2 * k + 1) * step
        while index + 1 < len(ticks) and ticks[index + 1] < middle:
            index += 1
        chosen.append(index)
    return chosen


def constant_rate(times: Sequence[Fraction], tick: Fraction, rates: Iterable[Fraction]) -> Fraction | None:
    """The rate among `rates` that all times follow to within one tick, or None for a variable frame rate.

    Containers that store whole milliseconds jitter around the true times; retiming needs the true ones.
    """
    for rate in rates:
        if all(abs(time - times[0] - index / rate) <= tick for index, time in enumerate(times)):
            return rate
    return None
