"""One test for each public bug report on buckets and frames that is kept as a case (rows F1 to F12), named by its row."""

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from tests.data.footage import encode
from tests.data.synthetic import grey, index_of
from tests.data.test_prepare import Setup
from tests.tiny.wan import write_tiny_wan
from trainer import draws
from trainer.data.buckets import rounded_buckets
from trainer.data.dataset import Item
from trainer.data.sampler import Sampler
from trainer.errors import UserError
from trainer.job import Bucket, TrainingJob, WindowSettings
from trainer.models import open_model
from trainer.models.base import FrameRule
from trainer.objectives.flow_matching import FlowMatching


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def test_f1_the_largest_window_that_fits_is_told(setup: Setup) -> None:
    """64 frames with buckets of 1 and 65: not trained as one frame either."""
    setup.clip("a.mp4", [grey(n % 20) for n in range(64)])
    setup.settings = {"buckets": [Bucket(frames=frames, height=48, width=64) for frames in (1, 65)]}
    with pytest.raises(UserError, match=r"64 frames at 16 frames/s .*least 65 frames.*61 is the largest that fits.*Use a longer clip"):
        setup.prepare()


def test_f2_no_clip_is_dropped_to_fill_batches(setup: Setup) -> None:
    """7 clips in 7 sizes, batch 4."""
    for n in range(7):
        setup.clip(f"{n}.mp4", 5 + 4 * n)
    setup.settings = {"buckets": [Bucket(frames=5 + 4 * n, height=48, width=64) for n in range(7)]}
    dataset = setup.prepare()
    assert len({item.size for item in dataset.items}) == 7
    sampler = Sampler(dataset, 4, 1, 0)
    for epoch in range(3):
        plans = [sampler.plan(epoch * sampler.steps_per_epoch + n + 1) for n in range(sampler.steps_per_epoch)]
        assert Counter(e.item.name for plan in plans for e in plan.examples) == Counter(f"{n}.mp4" for n in range(7))
        assert len({e.weight for plan in plans for e in plan.examples}) == 1


def test_f4_a_clip_that_is_too_short_is_told_and_nothing_left_is_an_error(setup: Setup) -> None:
    """three.mp4, window 33."""
    setup.clip("three.mp4", 3, rate=30)
    setup.clip("long.mp4", [grey(n % 20) for n in range(40)])
    setup.settings = {"windows": WindowSettings(size=33)}
    dataset = setup.prepare()
    assert [clip.name for clip in dataset.report.skipped] == ["three.mp4"] and len(dataset.items) == 1
    assert any("three.mp4: skipped: 2 frames at 16 frames/s" in notice for notice in setup.watcher.notices)
    (setup.clips / "long.mp4").unlink()
    with pytest.raises(UserError, match=r"none of the clips can be used(.|\n)*three.mp4"):
        setup.prepare()


@pytest.mark.parametrize("rule", [FrameRule(4, 1), FrameRule(8, 1), FrameRule(6, 1), FrameRule(17, 5), FrameRule(1, 1)], ids=str)
def test_f5_frame_counts_are_never_zero_or_negative(rule: FrameRule) -> None:
    for frames in (0, 1, 2, rule.offset - 1, rule.offset, rule.offset + rule.multiple - 1, rule.offset + rule.multiple):
        floor = rule.floor(frames)
        assert rule.allows(floor) and floor >= rule.offset
        assert floor <= max(frames, rule.offset) and (rule.allows(frames) == (floor == frames))


def test_f5_a_bucket_of_no_frames_is_refused() -> None:
    with pytest.raises(UserError, match=r"frames.*greater than or equal to 1"):
        Bucket.parse("0x48x64")


def test_f6_48_frames_are_rounded_and_told(setup: Setup) -> None:
    spec = setup_spec(FrameRule(8, 1))
    for asked, given in ((48, 41), (49, 49)):
        (bucket,), notices = rounded_buckets([Bucket(frames=asked, height=64, width=64)], spec, False)
        assert bucket.frames == given and len(notices) == (asked != given)


def test_f6_the_shipped_workflows_ask_for_sizes_their_models_take() -> None:
    sizes = []
    for file in (Path(__file__).parents[2] / "workflows").glob("*.json"):
        for node in json.loads(file.read_text(encoding="utf-8"))["nodes"]:
            if node["type"] == "VideoTrainerFrameBuckets":
                sizes += [Bucket.parse(line) for line in node["widgets_values"][0].split()]
    assert sizes and all(FrameRule(4, 1).allows(size.frames) and size.height % 16 == size.width % 16 == 0 for size in sizes)


def setup_spec(rule: FrameRule):
    from dataclasses import replace

    from tests.data.synthetic import SPEC

    return replace(SPEC, frame_rule=rule)


class Random:
    """A dataset of random latents and texts."""

    windows = None

    def __init__(self, count: int, size: Bucket) -> None:
        self.items = [Item(str(n), Path("x"), (f"caption {n}",), size, 1, 1, str(n)) for n in range(count)]

    def latents(self, item: Item, window: int = 0) -> dict[str, torch.Tensor]:
        size = item.size
        return {"latents": draws.normal((16, (size.frames - 1) // 4 + 1, size.height // 8, size.width // 8), "latents", item.key)}

    def picture(self, item: Item, window: int = 0) -> str:
        return ""

    def text(self, caption: str, picture: str = "") -> dict[str, torch.Tensor]:
        return {"text": draws.normal((1 + len(caption), 16), "text", caption)}


@pytest.mark.parametrize("batch", [2, 3])
def test_f8_a_batch_has_the_losses_of_its_clips_alone(tmp_path: Path, batch: int) -> None:
    """Noise and levels of each example go with it through model inputs, prediction and loss."""
    family = open_model(write_tiny_wan(tmp_path))
    job = TrainingJob.parse({"compute": {"device": "cpu"}})
    transformer = family.load_transformer(torch.float32)
    dataset, losses = Random(batch, Bucket(frames=5, height=32, width=32)), {}
    for size in (1, batch):
        objective = FlowMatching(job, family, dataset, Sampler(dataset, size, batch // size, 0), torch.device("cpu"))
        batches = list(objective.collect(1))
        assert [len(micro.examples) for micro in batches] == [size] * (batch // size)
        with torch.no_grad():
            told = [
                (e.item.key, loss.item())
                for micro in batches
                for e, loss in zip(micro.examples, objective.loss(transformer, micro), strict=True)
            ]
        losses[size] = dict(told)
    assert losses[1] == pytest.approx(losses[batch], rel=1e-5) and len(set(losses[1].values())) == batch


def test_f9_clips_of_different_length_are_never_in_one_batch(setup: Setup) -> None:
    """Clips of 33 and 49 frames, batch 2."""
    for name, frames in (("a.mp4", 33), ("b.mp4", 49), ("c.mp4", 33), ("d.mp4", 50)):
        setup.clip(name, [grey(n % 20) for n in range(frames)])
    setup.settings = {"buckets": [Bucket(frames=frames, height=48, width=64) for frames in (33, 49)]}
    dataset = setup.prepare()
    sampler = Sampler(dataset, 2, 1, 0)
    for step in range(1, 5):
        for batch in sampler.plan(step).micro_batches:
            assert torch.stack([dataset.latents(e.item, e.window)["latents"] for e in batch]).shape[2] in (9, 13)


@pytest.mark.parametrize(
    ("name", "height", "width", "codec"),
    [("portrait.mp4", 480, 270, "libx264"), ("landscape.mp4", 270, 480, "libx264"), ("odd.webm", 607, 1079, "libvpx-vp9")],
)
def test_f10_a_circle_stays_a_circle(setup: Setup, name: str, height: int, width: int, codec: str) -> None:
    """Buckets of both orientations; corner marks show which corner is which."""
    picture = np.full((height, width, 3), 40, np.uint8)
    radius = min(height, width) // 4
    cv2.circle(picture, (width // 2, height // 2), radius, (230, 230, 230), -1)
    picture[: height // 10, : width // 10] = (250, 30, 30)
    options = {"crf": "10"} | ({"cpu-used": "8", "deadline": "realtime", "b": "0"} if codec != "libx264" else {})
    encode(setup.clips / name, [picture] * 5, codec, "yuv444p" if height % 2 and codec == "libx264" else "yuv420p", options=options)
    buckets = [Bucket(frames=5, height=h, width=w) for h, w in ((240, 416), (416, 240), (320, 320))]
    setup.settings = {"buckets": buckets}
    (item,) = setup.prepare().items
    assert (item.size.height > item.size.width) == (height > width) and item.size.height != item.size.width
    frame = setup.family.encoded[0][2].numpy().astype(int)
    scale = max(item.size.height / height, item.size.width / width)
    white = frame.min(-1) > 135
    rows, columns = np.flatnonzero(white.any(1)), np.flatnonzero(white.any(0))
    assert np.ptp(rows) + 1 == pytest.approx(2 * radius * scale, abs=3) and np.ptp(columns) + 1 == pytest.approx(2 * radius * scale, abs=3)
    assert rows.mean() == pytest.approx(item.size.height / 2, abs=1.5) and columns.mean() == pytest.approx(item.size.width / 2, abs=1.5)
    red = (frame[..., 0] > 180) & (frame[..., 1] < 110)
    assert red[:8, :8].all() and not red[item.size.height // 2 :].any() and not red[:, item.size.width // 2 :].any()


def test_f12_rates_and_picked_frames_are_told(setup: Setup) -> None:
    setup.clip("film.mp4", [grey(n % 24) for n in range(48)], rate=Fraction(24))
    setup.settings = {"buckets": [Bucket(frames=9, height=48, width=64)]}
    report = setup.prepare().report
    clip = report.as_dict()["clips"][0]
    assert (clip["source_fps"], clip["target_fps"], clip["retimed_frames"], clip["used_frames"]) == (24.0, 16.0, 32, 9)
    assert clip["source_indices"] == (0, 2, 3, 5, 6, 8, 9, 11, 12)
    assert [index_of(frame) for frame in setup.family.encoded[0]] == list(clip["source_indices"])
    assert "film.mp4: 48 frames at 24 frames/s -> 32 at 16, 9 used -> 9x48x64" in report.lines()
