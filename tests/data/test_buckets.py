"""Buckets: rounding to the family's rule, the choice for a clip, automatic buckets."""

from dataclasses import replace

import pytest

from tests.data.synthetic import SPEC
from trainer.data.buckets import automatic_bucket, automatic_size, choose_bucket, rounded_buckets
from trainer.job import Bucket
from trainer.models.base import FrameRule


def bucket(text: str) -> Bucket:
    return Bucket.parse(text)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("1x48x64", "1x48x64"), ("2x48x64", "1x48x64"), ("4x48x64", "1x48x64"), ("5x48x64", "5x48x64"), ("48x480x832", "45x480x832"),
     ("49x480x832", "49x480x832"), ("17x50x70", "17x48x64"), ("17x57x73", "17x64x80"), ("17x16x20", "17x16x16")],
)  # fmt: skip
def test_rounding_is_told(given: str, expected: str) -> None:
    buckets, notices = rounded_buckets([bucket(given)], SPEC, windowed=False)
    assert [str(b) for b in buckets] == [expected]
    assert len(notices) == (given != expected)
    assert all(given in str(n) and expected in str(n) and "4n+1" in str(n) for n in notices)


def test_buckets_that_become_equal_are_merged() -> None:
    assert len(rounded_buckets([bucket("17x48x64"), bucket("18x48x64")], SPEC, windowed=False)[0]) == 1


def test_frames_stay_as_given_under_windows() -> None:
    assert rounded_buckets([bucket("48x48x64")], SPEC, windowed=True)[0] == [bucket("48x48x64")]


@pytest.mark.parametrize(
    ("frames", "height", "width", "expected"),
    [
        (60, 480, 832, "49x480x832"),
        (48, 480, 832, "33x480x832"),
        (200, 832, 480, "81x832x480"),
        (81, 832, 480, "81x832x480"),
        (60, 500, 500, "17x512x512"),
        (20, 1080, 1920, "17x512x512"),  # the only one it fills
        (16, 480, 832, None),
    ],
)
def test_choice(frames: int, height: int, width: int, expected: str | None) -> None:
    buckets = [bucket(text) for text in ("33x480x832", "49x480x832", "81x832x480", "17x512x512")]
    chosen = choose_bucket(buckets, frames, height, width, windowed=False)
    assert (None if chosen is None else str(chosen)) == expected


def test_automatic_bucket_takes_the_clips_length_and_shape() -> None:
    assert automatic_bucket(SPEC, 100, 48, 64) == bucket("17x48x64")
    assert automatic_bucket(SPEC, 16, 48, 64) == bucket("13x48x64")
    assert automatic_bucket(SPEC, 1, 64, 48) == bucket("1x64x48")
    assert automatic_bucket(replace(SPEC, frame_rule=FrameRule(17, 5)), 4, 48, 64) is None


@pytest.mark.parametrize(("height", "width"), [(480, 832), (832, 480), (1080, 1920), (1920, 1080), (720, 720), (480, 640), (1080, 2560)])
def test_automatic_size_keeps_area_and_shape(height: int, width: int) -> None:
    spec = replace(SPEC, default_bucket=(81, 480, 832))
    tall, wide = automatic_size(spec, height, width)
    assert tall % 16 == 0 and wide % 16 == 0
    assert 0.9 < tall * wide / (480 * 832) < 1.1
    assert 0.88 < (wide / tall) / (width / height) < 1.13


def test_the_familys_own_shape_is_used_where_it_is_near() -> None:
    spec = replace(SPEC, default_bucket=(81, 480, 832))
    assert automatic_size(spec, 1080, 1920) == (480, 832)
    assert automatic_size(spec, 1920, 1080) == (832, 480)
