"""Frame sampling and sizes through prepare_dataset: what the model gets, what is encoded again, what the report says."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.footage import encode
from tests.data.synthetic import FakeEncoders, FakeFamily, Watcher, grey, index_of, watched, write_clip
from tests.data.test_prepare import Setup
from trainer.data import clips
from trainer.data.cache import TensorCache
from trainer.data.prepare import prepare_dataset
from trainer.data.sampler import Sampler
from trainer.errors import Interrupted, UserError
from trainer.job import Bucket, CaptionSettings, DatasetSettings, VideoFolder, WindowSettings

SIZE = [Bucket(frames=5, height=48, width=64)]


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def frames_of(encoded: torch.Tensor) -> list[int]:
    return [index_of(frame) for frame in encoded]


def test_chunks_are_pieces_of_one_item_in_one_file(setup: Setup) -> None:
    setup.clip("a.mp4", 18)
    setup.settings = {"buckets": SIZE, "frame_sample_strategy": "chunk"}
    dataset = setup.prepare()
    (item,) = dataset.items
    assert item.windows == 3 and item.pieces
    assert [frames_of(encoded) for encoded in setup.family.encoded] == [list(range(n, n + 5)) for n in (0, 5, 10)]
    third = dataset.latents(item, 2)["latents"]
    assert third[0, :, 0, 0].tolist() == pytest.approx([grey(10).mean(), grey(14).mean()], abs=3)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"frame_sample_strategy": "uniform"}, [0, 4, 8, 12, 16]),
        ({"max_frames": 9, "buckets": [Bucket(frames=n, height=48, width=64) for n in (5, 9, 13)]}, list(range(9))),
        ({"max_duration": 0.5}, list(range(5))),
        ({"fps": -1.0}, list(range(5))),
        ({"fps": 8.0}, [0, 2, 4, 6, 8]),
    ],
)
def test_what_the_model_gets(setup: Setup, settings: dict, expected: list[int]) -> None:
    setup.clip("a.mp4", 17)
    setup.settings = {"buckets": SIZE, **settings}
    setup.prepare()
    assert frames_of(setup.family.encoded[0]) == expected


def test_native_rate_is_told_for_each_clip(setup: Setup) -> None:
    setup.clip("a.mp4", 24, rate=24)
    setup.clip("b.mp4", 17, rate=8)
    setup.settings = {"fps": "keep", "buckets": SIZE}
    report = setup.prepare().report
    assert [(clip.target_fps, clip.retimed, clip.retimed_frames) for clip in report.kept] == [(24, False, 24), (8, False, 17)]


def test_each_variant_is_encoded_once_and_more_variants_only_add(setup: Setup) -> None:
    setup.clip("a.mp4", 24)
    setup.settings = {"buckets": SIZE, "frame_sample_strategy": "random", "variants": 3}
    first = setup.prepare().items[0]
    keys = (first.key, *first.variants)
    assert 1 < len(set(keys)) == len(keys) == setup.work[0]
    assert len({tuple(frames_of(encoded)) for encoded in setup.family.encoded}) == len(keys)
    setup.settings["variants"] = 12
    more = setup.prepare().items[0]
    assert setup.work[0] == len(more.variants) + 1 - len(keys) > 0 and (more.key, *more.variants)[: len(keys)] == keys
    (setup.clips / "a.mp4").rename(setup.clips / "z.mp4")
    setup.prepare()
    assert setup.work[0] == 0  # draws go by content, not by name
    setup.seed = 1
    assert set(setup.prepare().items[0].variants) != set(more.variants)


def test_backwards_variants(setup: Setup) -> None:
    setup.clip("a.mp4", 5)
    setup.settings = {"temporal_augmentation": "reverse", "variants": 12}
    dataset = setup.prepare()
    assert sorted(frames_of(encoded) for encoded in setup.family.encoded) == [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0]]
    assert dataset.report.kept[0].variants == 2


IRRELEVANT = [
    {"variants": 9},
    {"frame_stride": 3},
    {"dataloader_threads": 0},
    {"max_frames": 500},
    {"max_duration": 60.0},
    {"crop_position": "left"},
    {"crop_position": "random", "variants": 4},
    {"no_upscale": True},
    {"scene_threshold": 90.0},
    {"temporal_augmentation": "crop", "variants": 4},
    {"frame_sample_strategy": "uniform"},
]


@pytest.mark.parametrize("settings", IRRELEVANT, ids=str)
def test_settings_that_change_no_pixel_encode_nothing_again(setup: Setup, settings: dict) -> None:
    """A clip of exactly its bucket's size: nothing is cut off, and there is only one way to sample it."""
    setup.clip("a.mp4", 17)
    setup.settings = {"buckets": [Bucket(frames=17, height=48, width=64)]}
    before = setup.prepare().fingerprint
    setup.settings.update(settings)
    assert setup.prepare().fingerprint == before and setup.encoders.loaded == []


def test_positions_of_the_crop(setup: Setup) -> None:
    left, right = np.full((48, 32, 3), 40, np.uint8), np.full((48, 32, 3), 200, np.uint8)
    write_clip(setup.clips / "a.mp4", [np.concatenate([left, right], 1)] * 5)
    levels = {}
    for position in ("left", "right", "centre", "top", "bottom"):
        setup.settings = {"buckets": [Bucket(frames=5, height=48, width=32)], "crop_position": position}
        setup.prepare()
        if setup.family.encoded:
            levels[position] = round(setup.family.encoded[0].float().mean().item())
    assert levels["left"] == pytest.approx(40, abs=4) and levels["right"] == pytest.approx(200, abs=4)
    assert levels["centre"] == pytest.approx(120, abs=4)
    assert "top" not in levels and "bottom" not in levels  # nothing lies above or below: those are the centre's pixels
    setup.settings = {"buckets": [Bucket(frames=5, height=48, width=32)], "crop_position": "random", "variants": 6}
    assert len(setup.prepare().items[0].variants) >= 2 and setup.work[0] >= 2


def test_tiles_are_other_latents_but_only_while_they_are_on(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    setup.clip("a.mp4")
    before = setup.prepare().fingerprint
    init = FakeEncoders.__init__
    monkeypatch.setattr(FakeEncoders, "__init__", lambda self: (init(self), setattr(self, "tiled", True))[0])
    assert setup.prepare().fingerprint != before and setup.work == (1, 0)
    monkeypatch.undo()
    assert setup.prepare().fingerprint == before and setup.work == (0, 0)


def test_threads_change_nothing_that_is_cached(setup: Setup, tmp_path: Path) -> None:
    for number in range(6):
        setup.clip(f"{number}.mp4", 17 + number)
    setup.settings = {"windows": WindowSettings(size=9, stride=3)}
    cached = []
    for threads in (0, 1, 4):
        setup.cache, setup.settings["dataloader_threads"] = tmp_path / f"cache {threads}", threads
        dataset = setup.prepare()
        cached.append({path.relative_to(setup.cache): path.read_bytes() for path in setup.cache.rglob("*.safetensors")})
        assert [frames_of(encoded)[0] for encoded in setup.family.encoded[:3]] == [0, 3, 6]
        assert len(dataset.items) == 6
    assert cached[0] == cached[1] == cached[2] and len(cached[0]) == 8


def test_clips_are_decoded_in_other_threads_and_cancel_ends_them(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        setup.clip(f"{number}.mp4", 17 + number)
    seen = set()
    examples = clips.examples

    def spied(plan, take, check):
        seen.add(threading.current_thread().name)
        for place, value in enumerate(examples(plan, take, check)):
            yield value
            if plan.record.name == "1.mp4" and place == 0:
                setup.watcher.cancelled = True

    monkeypatch.setattr(clips, "examples", spied)
    with pytest.raises(Interrupted):
        setup.prepare()
    monkeypatch.undo()
    assert seen == {"clip decoding"} and not [t for t in threading.enumerate() if t.name == "clip decoding"]
    setup.watcher = Watcher()
    assert len(setup.prepare().items) == 4


def test_small_clips_keep_their_size_if_so_set(setup: Setup) -> None:
    setup.clip("small.mp4", [grey(n, 40, 50) for n in range(17)])
    setup.clip("large.mp4", [grey(n, 96, 128) for n in range(17)])
    setup.settings = {"buckets": [Bucket(frames=17, height=48, width=64)], "no_upscale": True}
    dataset = setup.prepare()
    assert {item.name: str(item.size) for item in dataset.items} == {"large.mp4": "17x48x64", "small.mp4": "17x32x48"}
    assert [clip.own_size for clip in dataset.report.kept] == [False, True] and not any(clip.enlarged for clip in dataset.report.kept)
    assert any("1 of 2 clips are smaller than every bucket" in notice for notice in setup.watcher.notices)
    setup.clip("tiny.mp4", [grey(n, 12, 50) for n in range(17)])
    skipped = setup.prepare().report.skipped
    assert [clip.name for clip in skipped] == ["tiny.mp4"] and "12x50, smaller than the model takes" in skipped[0].skipped
    assert "dataset.no_upscale" in skipped[0].cure


def test_what_changes_motion_is_told(setup: Setup) -> None:
    setup.clip("a.mp4", 17)
    setup.settings = {"buckets": SIZE, "frame_sample_strategy": "uniform", "frame_shuffling": True}
    setup.prepare()
    assert any("speeds motion up" in notice for notice in setup.watcher.notices)
    assert any("destroys motion" in notice for notice in setup.watcher.notices)
    setup.settings = {"buckets": SIZE, "frame_sample_strategy": "chunk", "temporal_augmentation": "crop"}
    setup.prepare()
    assert any("crop adds nothing to chunk" in notice for notice in setup.watcher.notices)


def test_windows_and_a_strategy_do_not_go_together(setup: Setup) -> None:
    setup.clip("a.mp4", 17)
    setup.settings = {"windows": WindowSettings(size=5), "frame_sample_strategy": "chunk"}
    with pytest.raises(UserError, match=r"dataset.frame_sample_strategy: 'chunk'.*Set it to head"):
        setup.prepare()


def test_duplicates_are_found_without_decoding_twice(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = np.random.default_rng(0).integers(0, 255, (6, 8, 3), np.uint8).repeat(16, 0).repeat(16, 1)
    other = np.random.default_rng(1).integers(0, 255, (6, 8, 3), np.uint8).repeat(16, 0).repeat(16, 1)
    setup.clip("a.mp4", [picture] * 9)
    (setup.clips / "copy.mp4").write_bytes((setup.clips / "a.mp4").read_bytes())
    setup.clip("again.mp4", [picture[:, ::2][::2]] * 9)  # another file of the same look
    setup.clip("b.mp4", [other] * 9)
    opened = []
    decode = clips.decode_frames
    monkeypatch.setattr(clips, "decode_frames", lambda path, *rest: (opened.append(path.name), decode(path, *rest))[1])
    report = setup.prepare().report
    assert report.duplicates == [["a.mp4", "copy.mp4"]] and report.alike == [["a.mp4", "again.mp4", "copy.mp4"]]
    assert sorted(opened) == ["a.mp4", "again.mp4", "b.mp4"]
    again = setup.prepare().report  # from the cache
    assert (again.duplicates, again.alike) == (report.duplicates, report.alike) and len(opened) == 3
    assert json.loads(json.dumps(report.as_dict()))["alike"] == report.alike
    assert any("look alike: a.mp4, again.mp4, copy.mp4" in line for line in report.lines())


def test_pieces_begin_at_the_files_keyframes(setup: Setup) -> None:
    options = {"g": "6", "keyint_min": "6", "sc_threshold": "0", "bf": "0", "crf": "4", "preset": "ultrafast"}
    encode(setup.clips / "a.mp4", [grey(n) for n in range(20)], "libx264", "yuv420p", options=options)
    setup.settings = {"buckets": SIZE, "frame_sample_strategy": "keyframe"}
    setup.prepare()
    assert [frames_of(encoded) for encoded in setup.family.encoded] == [list(range(n, n + 5)) for n in (0, 6, 12)]


def test_still_images_are_trained_beside_windows(setup: Setup) -> None:
    import cv2

    setup.clip("a.mp4", 9)
    cv2.imwrite(str(setup.clips / "still.png"), grey(3))
    settings = DatasetSettings(sources=[VideoFolder(folder=str(setup.clips), images=True)], windows=WindowSettings(size=5, stride=2))
    fake = FakeFamily(setup.model), TensorCache(setup.cache), FakeEncoders(), watched(setup.watcher)
    dataset = prepare_dataset(settings, CaptionSettings(), *fake)
    assert [(item.name, str(item.size), item.windows) for item in dataset.items] == [("a.mp4", "5x48x64", 3), ("still.png", "1x48x64", 1)]
    plans = [Sampler(dataset, 2, 1, 0).plan(step) for step in (1, 2)]
    assert all(len({example.item.size for example in batch}) == 1 for plan in plans for batch in plan.micro_batches)
