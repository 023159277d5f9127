"""Buckets: rounding to the family's rule, the choice for a clip, automatic buckets."""

from dataclasses import replace

import pytest

from tests.data.synthetic import SPEC
from trainer.data.buckets import Sizes, choose_bucket, own_size, rounded_buckets, shapes_of_area, sizes
from trainer.errors import UserError
from trainer.job import Bucket, DatasetSettings
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
    automatic = Sizes(SPEC).choose
    assert automatic(100, 48, 64) == bucket("17x48x64")
    assert automatic(16, 48, 64) == bucket("13x48x64")
    assert automatic(1, 64, 48) == bucket("1x64x48")
    assert Sizes(replace(SPEC, frame_rule=FrameRule(17, 5))).choose(4, 48, 64) is None


@pytest.mark.parametrize(("height", "width"), [(480, 832), (832, 480), (1080, 1920), (1920, 1080), (720, 720), (480, 640), (1080, 2560)])
def test_automatic_size_keeps_area_and_shape(height: int, width: int) -> None:
    spec = replace(SPEC, default_bucket=(81, 480, 832))
    made = Sizes(spec).choose(81, height, width)
    assert made is not None
    tall, wide = made.height, made.width
    assert tall % 16 == 0 and wide % 16 == 0
    assert 0.9 < tall * wide / (480 * 832) < 1.1
    assert 0.88 < (wide / tall) / (width / height) < 1.13


def test_the_familys_own_shape_is_used_where_it_is_near() -> None:
    spec = replace(SPEC, default_bucket=(81, 480, 832))
    assert Sizes(spec).choose(81, 1080, 1920) == bucket("81x480x832")
    assert Sizes(spec).choose(81, 1920, 1080) == bucket("81x832x480")


def chosen(settings: dict, frames: int, height: int, width: int) -> str:
    made, _ = sizes(DatasetSettings(**settings), SPEC, windowed=False)
    return str(made.choose(frames, height, width))


def test_areas_in_every_shape_with_frame_counts() -> None:
    settings = {"resolutions": [512, "480x832"], "frame_buckets": [33, 49]}
    assert chosen(settings, 60, 512, 512) == "49x512x512"
    assert chosen(settings, 48, 480, 832) == "33x480x832"
    assert chosen(settings, 60, 1920, 1080) == "49x832x480"  # the larger area is nearer
    assert chosen(settings, 60, 360, 640) == "49x384x688"  # the smaller is
    assert chosen(settings, 32, 480, 832) == "None"


def test_areas_or_frame_counts_alone_leave_the_rest_to_the_clip() -> None:
    assert chosen({"resolutions": ["96"]}, 10, 100, 100) == "9x96x96"
    assert chosen({"frame_buckets": [5, 13]}, 10, 48, 64) == "5x48x64"
    with pytest.raises(UserError, match=r"Set dataset\.frame_buckets too"):
        chosen({"resolutions": [96], "buckets": ["17x48x64"]}, 20, 48, 64)


def test_shapes_can_be_chosen() -> None:
    assert shapes_of_area(SPEC, 512, 512, [16 / 9, 1.0]) == [(384, 688), (512, 512)]
    assert DatasetSettings(aspect_ratios=["16:9", 1]).aspect_ratios == [16 / 9, 1]
    with pytest.raises(ValueError, match="not a shape"):
        DatasetSettings(aspect_ratios=["wide"])


def test_off_grid_areas_and_counts_are_told() -> None:
    made, notices = sizes(DatasetSettings(resolutions=[572], frame_buckets=[120]), SPEC, windowed=False)
    assert [str(notice) for notice in notices] == [
        "dataset.frame_buckets.0: 120 frames were rounded to 117: the model takes 4n+1.",
        "dataset.resolutions.0: 572x572 was rounded to 576x576: the model takes multiples of 16.",
    ]
    assert {bucket.frames for bucket in made.buckets} == {117}


def test_still_images_take_one_frame_and_clips_never_do() -> None:
    settings = {"buckets": ["1x48x64", "17x48x64"]}
    assert chosen(settings, 1, 64, 48) == "1x48x64" and chosen(settings, 16, 48, 64) == "None"
    assert chosen({"buckets": ["17x48x64", "17x64x48"]}, 1, 64, 48) == "1x64x48"
    assert chosen({"buckets": ["1x48x64"]}, 16, 48, 64) == "1x48x64"  # nothing else is asked for


def test_small_clips_are_not_enlarged_if_so_set() -> None:
    settings = {"buckets": ["17x480x832", "9x96x96"], "no_upscale": True}
    assert chosen(settings, 20, 720, 1280) == "17x480x832"
    assert chosen(settings, 20, 100, 200) == "9x96x96"
    assert chosen(settings, 20, 90, 70) == "17x80x64"
    assert chosen({"no_upscale": True}, 20, 40, 70) == "17x32x64"
    assert chosen({"no_upscale": True, "frame_buckets": [5], "resolutions": [512]}, 20, 40, 70) == "5x32x64"
    assert own_size(SPEC, 10, 17) == (16, 16)


def test_sizes_that_only_the_grid_tells_apart_are_one_shape() -> None:
    near = [bucket("17x480x832"), bucket("33x480x848")]
    assert str(choose_bucket(near, 40, 480, 832, windowed=False)) == "33x480x848"
