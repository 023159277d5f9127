"""The dataset report on a folder of mixed good and bad files: each is accounted for, every drop has a reason and a cure."""

import json
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.data.footage import scene
from tests.data.synthetic import FakeEncoders, FakeFamily, Watcher, watched, write_clip, write_model
from trainer.data.cache import TensorCache
from trainer.data.dataset import Dataset
from trainer.data.prepare import prepare_dataset
from trainer.data.report import CaptionStatistics
from trainer.data.sampler import Sampler
from trainer.job import Bucket, CaptionSettings, DatasetSettings, VideoFolder

GOOD = {"a.mp4", "b.MOV", "c.mkv", "d.webm", "e.avi", "f.m4v", "g.gif", "film.mp4", "slow.mp4", "tall.mp4", "small.mp4", "long.mp4",
        "sub/Привет [1] é.mp4", "copy.mp4", "again.mp4", "still.png", "photo.jpg"}  # fmt: skip
BAD = {"empty.mp4", "text.mp4", "cut.mp4", "three.mp4", "sound.mp4", "broken.mkv", "notes.webm", "damaged.png"}
OTHER = {"Thumbs.db", "desktop.ini", "a.mp4.part", "z.zip", "readme"}  # and hidden ones, which are not looked at


def moving(seed: int, frames: int = 9, height: int = 48, width: int = 64) -> list[np.ndarray]:
    return [scene(n + 40 * seed, height, width) for n in range(frames)]


def silent_video(path: Path) -> None:
    """A file with sound alone."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("clips")
    for number, (name, codec) in enumerate(
        [
            ("a.mp4", "libx264"),
            ("b.MOV", "mpeg4"),
            ("c.mkv", "libx264"),
            ("d.webm", "libvpx-vp9"),
            ("e.avi", "libx264"),
            ("f.m4v", "libx264"),
        ]
    ):
        write_clip(root / name, moving(number), codec=codec)
    write_clip(root / "g.gif", moving(7), codec="gif", rate=10)
    write_clip(root / "film.mp4", moving(8, 24), rate=24)
    write_clip(root / "slow.mp4", moving(9, 6), rate=8)
    write_clip(root / "tall.mp4", moving(10, 9, 64, 48))
    write_clip(root / "small.mp4", moving(11, 9, 24, 32))
    write_clip(root / "long.mp4", moving(12, 40))
    write_clip(root / "sub" / "Привет [1] é.mp4", moving(13))
    shutil.copy(root / "a.mp4", root / "copy.mp4")
    write_clip(root / "again.mp4", moving(2), codec="mpeg4")  # c.mkv by another encoder
    for name, seed in (("still.png", 14), ("photo.jpg", 15)):
        cv2.imwrite(str(root / name), scene(40 * seed, 48, 64))
    write_clip(root / "three.mp4", moving(16, 3))
    (root / "empty.mp4").write_bytes(b"")
    (root / "text.mp4").write_text("this is no video\n" * 40)
    (root / "notes.webm").write_bytes(bytes(range(256)) * 8)
    (root / "cut.mp4").write_bytes((root / "long.mp4").read_bytes()[:4000])
    (root / "broken.mkv").write_bytes((root / "c.mkv").read_bytes()[:300])
    (root / "damaged.png").write_bytes((root / "still.png").read_bytes()[:60])
    silent_video(root / "sound.mp4")
    for name in (*OTHER, "._a.mp4", ".DS_Store"):
        (root / name).write_bytes(b"x")
    (root / "a.txt").write_text("one two three", encoding="utf-8")
    (root / "b.txt").write_bytes("it’s a café".encode("cp1252"))
    (root / "c.txt").write_bytes(b"  \r\n")
    return root


@pytest.fixture(scope="module")
def dataset(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    root = tmp_path_factory.mktemp("run")
    write_model(root / "model")
    settings = DatasetSettings(
        sources=[VideoFolder(folder=str(folder), images=True)],
        buckets=[Bucket(frames=9, height=48, width=64), Bucket(frames=9, height=64, width=48)],
    )
    fake = FakeFamily(root / "model"), TensorCache(root / "cache"), FakeEncoders(), watched(Watcher())
    made = prepare_dataset(settings, CaptionSettings(), *fake)
    made.report.describe(Sampler(made, 4, 1, 0))
    return made


def test_every_file_is_accounted_for(folder: Path, dataset: Dataset) -> None:
    report = dataset.report
    assert {clip.name for clip in report.kept} == GOOD and {clip.name for clip in report.skipped} == BAD
    assert len(report.clips) == len(GOOD) + len(BAD) and len(GOOD | BAD | OTHER) == 30
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    assert sum(report.seen.values()) == len(files)


def test_every_drop_has_a_reason_and_a_cure(dataset: Dataset) -> None:
    reasons = {clip.name: clip.skipped for clip in dataset.report.skipped}
    assert all(reasons.values()) and all(clip.cure.endswith(".") for clip in dataset.report.skipped)
    for name, reason in {
        "empty.mp4": "empty", "text.mp4": "cannot be read", "cut.mp4": "cannot be read", "notes.webm": "cannot be read",
        "three.mp4": "3 frames at 16 frames/s", "sound.mp4": "no video stream", "damaged.png": "cannot be read",
    }.items():  # fmt: skip
        assert reason in reasons[name], (name, reasons[name])
    assert "1 is the largest that fits" in reasons["three.mp4"]


def test_what_happened_to_each_clip(dataset: Dataset) -> None:
    clips = {clip.name: clip for clip in dataset.report.kept}
    assert {name for name, clip in clips.items() if clip.retimed} == {"film.mp4", "slow.mp4", "g.gif"}
    assert {name for name, clip in clips.items() if clip.shortened} >= {"film.mp4", "slow.mp4", "long.mp4"}
    assert {name for name, clip in clips.items() if clip.enlarged} == {"small.mp4"}
    assert dataset.report.buckets == {"1x48x64": 2, "9x48x64": 14, "9x64x48": 1}
    assert dataset.report.duplicates == [["a.mp4", "copy.mp4"]]
    assert ["again.mp4", "c.mkv"] in dataset.report.alike
    assert dataset.report.texts == CaptionStatistics(len(GOOD), round(6 / len(GOOD), 1), 3, len(GOOD) - 2, 1)
    assert dataset.report.captions == {"file": 2, "setting": 0, "none": len(GOOD) - 2}
    assert dataset.report.steps_per_epoch == 5


def test_it_is_told_as_json_and_text(dataset: Dataset) -> None:
    data, lines = json.loads(json.dumps(dataset.report.as_dict())), dataset.report.lines()
    assert (data["kept"], data["skipped"]) == (len(GOOD), len(BAD)) and data["retimed"] == 3
    assert {clip["name"] for clip in data["clips"]} == GOOD | BAD
    assert data["seen"] == dataset.report.seen and sum(data["seen"].values()) == 30 + 3  # with three captions
    assert all(bool(clip["skipped"]) == bool(clip["cure"]) == (clip["name"] in BAD) for clip in data["clips"])
    for clip in data["clips"]:
        (line,) = [line for line in lines if line.startswith(f"{clip['name']}: ")]
        assert clip["bucket"] in line if clip["name"] in GOOD else (clip["skipped"] in line and clip["cure"].rstrip(".") in line)
    assert any(line.endswith("█ 1") or line.endswith("█ 14") for line in lines)
    assert any("5 steps per epoch" in line for line in lines)


def test_caption_statistics() -> None:
    stats = CaptionStatistics.of([("a b c", "a"), ("",), ("a b c d",)])
    assert (stats.texts, stats.mean_words, stats.longest_words, stats.empty, stats.most_variants) == (4, 2.0, 4, 1, 2)
    assert CaptionStatistics.of([]).texts == 0
