"""Retiming, in exact numbers."""

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import floor

import pytest

from trainer.data.retime import constant_rate, exact_rate, frame_count, retime


def steady(count: int, rate: Fraction | int) -> tuple[list[Fraction], Fraction]:
    return [Fraction(i) / rate for i in range(count)], Fraction(count) / rate


@pytest.mark.parametrize(
    ("count", "rate", "fps", "expected"),
    [
        (49, 16, 16, list(range(49))),
        (9, 24, 16, [0, 2, 3, 5, 6, 8]),
        (6, 16, 24, [0, 0, 1, 2, 2, 3, 4, 4, 5]),
        (8, 32, 16, [0, 2, 4, 6]),
        (3, 30, 16, [0, 2]),
        (2, 8, 16, [0, 0, 1, 1]),
        (1, 60, 16, [0]),
        (10, Fraction(24000, 1001), 16, [0, 2, 3, 5, 6, 8, 9]),
    ],
)
def test_indices(count: int, rate: Fraction | int, fps: int, expected: list[int]) -> None:
    assert retime(*steady(count, rate), Fraction(fps)) == expected


@pytest.mark.parametrize(("count", "expected"), [(101, 67), (113, 75)])
def test_ntsc_film_to_16(count: int, expected: int) -> None:
    indices = retime(*steady(count, Fraction(24000, 1001)), Fraction(16))
    assert len(indices) == expected
    assert all(step in (1, 2) for step in (b - a for a, b in pairwise(indices)))


def test_variable_rate_holds_a_frame_while_it_is_shown() -> None:
    times = [Fraction(n, 1000) for n in (0, 62, 1000, 1062)]  # the second is held for almost a second
    indices = retime(times, Fraction(1125, 1000), Fraction(16))
    assert indices == [0] + [1] * 15 + [2, 3]


def test_start_time_does_not_matter() -> None:
    times, end = steady(20, 24)
    late = [time + Fraction(7, 3) for time in times]
    assert retime(late, end + Fraction(7, 3), Fraction(16)) == retime(times, end, Fraction(16))


def test_milliseconds_are_recognised_as_a_constant_rate() -> None:
    times = [Fraction(round(1000 * i / 60), 1000) for i in range(50)]
    assert constant_rate(times, Fraction(1, 1000), [Fraction(50), Fraction(60)]) == 60
    times[20] += Fraction(1, 50)
    assert constant_rate(times, Fraction(1, 1000), [Fraction(50), Fraction(60)]) is None


@pytest.mark.parametrize("rate", [Fraction(24000, 1001), Fraction(25), Fraction(30000, 1001), Fraction(60), Fraction(120)])
@pytest.mark.parametrize("rounded", [round, floor])
def test_whole_milliseconds_stay_a_constant_rate(rate: Fraction, rounded: Callable[[Fraction], int]) -> None:
    times = [Fraction(rounded(1000 * i / rate), 1000) for i in range(1000)]
    assert constant_rate(times, Fraction(1, 1000), [Fraction(50), rate]) == rate


@pytest.mark.parametrize(
    ("tick", "mean", "place"),
    [
        (Fraction(1, 30), Fraction(45, 2), lambda n: n + n // 3),  # every fourth frame of 30 a second is missing
        (Fraction(1, 60), Fraction(30), lambda n: 2 * n + n % 2),  # every second frame is late by half of one
    ],
)
def test_a_coarse_tick_does_not_hide_a_variable_rate(tick: Fraction, mean: Fraction, place: Callable[[int], int]) -> None:
    times = [place(n) * tick for n in range(60)]
    assert max(abs(time - n / mean) for n, time in enumerate(times)) <= tick
    assert constant_rate(times, tick, [mean]) is None
    assert constant_rate([n * tick for n in range(60)], tick, [mean, 1 / tick]) == 1 / tick


def test_no_more_frames_are_retimed_than_are_asked_for() -> None:
    times = [Fraction(0), Fraction(1, 30), Fraction(10**7)]
    assert retime(times, times[-1] + 1, Fraction(30), 3) == [0, 1, 1]
    assert frame_count(times, times[-1] + 1, Fraction(30)) == 30 * (10**7 + 1)
    assert retime(times, times[-1] + 1, Fraction(1, 10**6)) == [1] * 10


def test_rates_from_settings_are_exact() -> None:
    assert exact_rate(16.0) == 16
    assert exact_rate(24000 / 1001) == Fraction(24000, 1001)
    assert exact_rate(29.97) == Fraction(2997, 100)
