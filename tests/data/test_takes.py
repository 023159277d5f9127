"""Which frames of a clip become examples, in exact numbers."""

from fractions import Fraction

import pytest

from trainer.data.colour import BT709, Colour
from trainer.data.probe import Probe
from trainer.data.sources.record import UnusableClip
from trainer.data.takes import Drawing, Take, takes, windowed_takes
from trainer.data.timeline import Timeline, timeline
from trainer.frame_settings import FrameSampling
from trainer.job import WindowSettings


def probe_of(times: list[Fraction], end: Fraction, keys: tuple[int, ...] = ()) -> Probe:
    return Probe(tuple(range(len(times))), tuple(times), end, 48, 64, 0, Colour(BT709, 1), "h264", False, keys=keys)


def steady(count: int, rate: int, keys: tuple[int, ...] = ()) -> Probe:
    return probe_of([Fraction(n, rate) for n in range(count)], Fraction(count, rate), keys)


def line(count: int, *cuts: int) -> Timeline:
    return timeline(steady(count, 16), 16, 0, cuts)


def taken(
    clip: Timeline, frames: int, keys: tuple[int, ...] = (), crop: str = "centre", seed: int = 0, **settings: object
) -> tuple[Take, ...]:
    return takes(clip, frames, keys, FrameSampling(**settings), crop, Drawing(seed, "content"))


def shown(take: Take, frames: int) -> list[list[int]]:
    """The file's frames of each example."""
    pieces = [list(take.indices[start : start + frames]) for start in take.starts]
    return [[piece[place] for place in take.order] for piece in pieces] if take.order else pieces


@pytest.mark.parametrize("fps", [-1, 16])
def test_a_broken_timestamp_is_told_unless_it_lies_behind_what_is_used(fps: float) -> None:
    broken = probe_of([Fraction(0), Fraction(1, 30), Fraction(10**7)], Fraction(10**7) + Fraction(1, 30))
    with pytest.raises(UnusableClip, match=r"would last 2,778 hours .* wrong"):
        timeline(broken, fps, 0)
    clip = timeline(broken, fps, 1.0)
    assert clip.source == ((0, 1) if fps == -1 else (0, *[1] * 15))
    assert clip.whole == (3 if fps == -1 else 16 * 10**7 + 1)
    assert timeline(probe_of([Fraction(0), Fraction(86000)], Fraction(86400)), fps, 0).source[-1] == 1


def test_native_rate_uses_each_frame_once() -> None:
    uneven = probe_of([Fraction(n, 1000) for n in (0, 62, 1000, 1062)], Fraction(1125, 1000))
    clip = timeline(uneven, -1, 0)
    assert clip.source == (0, 1, 2, 3) and not clip.retimed and clip.fps == pytest.approx(4 / 1.125)
    assert timeline(uneven, -1, 0.5).source == (0, 1)
    assert timeline(steady(48, 24), 16, 0).retimed and not timeline(steady(48, 16), 16, 0).retimed


@pytest.mark.parametrize(("seconds", "frames"), [(0, 80), (1, 16), (1.01, 17), (0.03, 1), (99, 80)])
def test_longest_duration(seconds: float, frames: int) -> None:
    clip = timeline(steady(120, 24), 16, seconds)
    assert len(clip.source) == frames and clip.whole == 80


def test_scenes_follow_the_cuts_through_retiming() -> None:
    assert [(scene.start, scene.stop) for scene in line(20, 7, 12).scenes] == [(0, 7), (7, 12), (12, 20)]
    half = timeline(steady(20, 32), 16, 0, (7, 12))  # shows 0, 2, 4, …
    assert half.source[4] == 8 and [scene.start for scene in half.scenes] == [0, 4, 6]
    double = timeline(steady(10, 8), 16, 0, (3,))
    assert double.source[5:7] == (2, 3) and [scene.start for scene in double.scenes] == [0, 6]
    assert len(line(20, 100).scenes) == 1  # beyond what is used


def test_head_takes_the_first_frames_of_the_first_scene_that_holds_them() -> None:
    assert shown(*taken(line(20), 5), 5) == [[0, 1, 2, 3, 4]]
    assert shown(*taken(line(20, 3), 5), 5) == [[3, 4, 5, 6, 7]]


def test_chunks_lie_end_to_end_within_scenes() -> None:
    (take,) = taken(line(20, 7), 5, frame_sample_strategy="chunk")
    assert shown(take, 5) == [[0, 1, 2, 3, 4], [7, 8, 9, 10, 11], [12, 13, 14, 15, 16]]
    assert len(taken(line(24), 5, frame_sample_strategy="chunk")[0].starts) == 4


def test_slide_overlaps_by_its_stride() -> None:
    (take,) = taken(line(14, 8), 5, frame_sample_strategy="slide", frame_stride=2)
    assert [piece[0] for piece in shown(take, 5)] == [0, 2, 8]


@pytest.mark.parametrize(
    ("count", "frames", "expected"), [(21, 5, [0, 5, 10, 15, 20]), (10, 4, [0, 3, 6, 9]), (7, 1, [0]), (5, 5, [0, 1, 2, 3, 4])]
)
def test_uniform_spreads_over_the_longest_scene(count: int, frames: int, expected: list[int]) -> None:
    assert shown(*taken(line(count), frames, frame_sample_strategy="uniform"), frames) == [expected]
    later = shown(*taken(line(3 + count, 3), frames, frame_sample_strategy="uniform"), frames)
    assert later == [[3 + place for place in expected]]


def test_keyframes_begin_pieces_that_do_not_overlap() -> None:
    def starts(keys: tuple[int, ...], *cuts: int) -> list[int]:
        return [piece[0] for piece in shown(*taken(line(20, *cuts), 5, keys, frame_sample_strategy="keyframe"), 5)]

    assert starts((0, 3, 8, 12, 14, 18)) == [0, 8, 14]
    assert starts((0, 3, 8, 12, 14, 18), 11) == [0, 12]
    assert starts(()) == [0] and starts((17,)) == [0]  # none fits: the first frames
    retimed = timeline(steady(40, 32, (0, 13)), 16, 0)
    assert shown(*taken(retimed, 5, (0, 13), frame_sample_strategy="keyframe"), 5)[1][0] == 14  # the first one shown after it


def test_random_starts_are_drawn_by_seed_content_and_variant() -> None:
    first = taken(line(60, 20), 5, frame_sample_strategy="random", variants=16)
    assert first == taken(line(60, 20), 5, frame_sample_strategy="random", variants=16)
    assert first != taken(line(60, 20), 5, frame_sample_strategy="random", variants=16, seed=1)
    starts = [take.indices[0] for take in first]
    assert len(starts) > 8 and min(starts) < 16 and max(starts) > 30
    assert all(not {19, 20} <= set(take.indices) for take in first)  # never across the cut
    assert taken(line(60, 20), 5, frame_sample_strategy="random", variants=3) == first[:3]  # more variants keep the earlier
    assert len(taken(line(5), 5, frame_sample_strategy="random", variants=16)) == 1  # all alike


def test_crop_takes_from_a_random_part() -> None:
    cropped = taken(line(40), 5, temporal_augmentation="crop", variants=32)
    assert {take.indices[0] for take in cropped} <= set(range(21)) and len({take.indices[0] for take in cropped}) > 8
    spread = [take.indices for take in taken(line(40), 5, temporal_augmentation="crop", frame_sample_strategy="uniform", variants=32)]
    assert all(indices[-1] - indices[0] >= 19 for indices in spread) and len(set(spread)) > 8


def test_reverse_plays_some_variants_backwards() -> None:
    both = taken(line(20), 5, temporal_augmentation="reverse", variants=16)
    assert sorted(shown(take, 5) for take in both) == [[[0, 1, 2, 3, 4]], [[4, 3, 2, 1, 0]]]
    assert taken(line(1), 1, temporal_augmentation="reverse", variants=16) == taken(line(1), 1)


def test_shuffling_keeps_every_frame() -> None:
    shuffled = taken(line(20), 9, frame_shuffling=True, variants=8)
    assert len(shuffled) == 8 and all(sorted(take.order) == list(range(9)) for take in shuffled)


def test_a_dropped_frame_shows_the_one_before_but_never_of_another_scene() -> None:
    for take in taken(line(60, 20), 40, frame_dropout_probability=0.5, variants=16):
        assert take.indices[0] == 20
        kept = [place for place, index in enumerate(take.indices) if index == 20 + place]
        assert 8 < len(kept) < 32
        assert all(index in (20 + place, take.indices[place - 1]) for place, index in enumerate(take.indices))
    windows = WindowSettings(size=5)
    for take in windowed_takes(
        line(40, 20), 40, windows, FrameSampling(frame_dropout_probability=0.9, variants=4), "centre", Drawing(0, "")
    ):
        assert take.indices[20] == 20 and list(take.indices) == sorted(take.indices)


def test_nothing_random_is_one_variant() -> None:
    assert len(taken(line(60), 5, variants=8)) == 1
    assert len(taken(line(60), 5, variants=8, crop="left")) == 1 and taken(line(60), 5, crop="left")[0].place == (0.5, 0.0)
    assert len({take.place for take in taken(line(60), 5, variants=8, crop="random")}) == 8


def test_windows_lie_within_reach_and_scenes() -> None:
    def starts(reach: int, *cuts: int) -> list[int]:
        found = windowed_takes(line(20, *cuts), reach, WindowSettings(size=5, stride=2), FrameSampling(), "centre", Drawing(0, ""))
        return list(found[0].starts) if found else []

    assert starts(20) == [0, 2, 4, 6, 8, 10, 12, 14] and starts(10) == [0, 2, 4]
    assert starts(20, 6, 9) == [0, 9, 11, 13, 15] and starts(10, 6) == [0] and starts(10, 4, 8) == []
