"""A preview shows what training sees: the same frames, the same texts, the same clips left out; and decodes no more than it shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.data.synthetic import FakeEncoders, FakeFamily, Watcher, watched, write_clip, write_model
from trainer.data import preview as module
from trainer.data.cache import TensorCache
from trainer.data.contact_sheet import LONGEST_SIDE, contact_sheet, facts, strip
from trainer.data.prepare import prepare_dataset
from trainer.data.preview import Preview, preview_dataset
from trainer.data.sampler import Sampler
from trainer.data.sources.scan import scan
from trainer.data.sources.sidecar import current_caption, write_caption
from trainer.errors import Interrupted, UserError
from trainer.events import Progress
from trainer.job import Bucket, CaptionSettings, DatasetSettings, ScheduleSettings, VideoFolder, WindowSettings
from trainer.preview_settings import PreviewSettings
from trainer.source_settings import PairedFolders, ParquetFolder


@pytest.fixture
def clips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("trainer.data.content._RACY_NS", -(10**12))  # files are remembered at once
    folder = tmp_path / "clips"
    for number in range(4):
        draw = np.random.default_rng(number)
        pictures = [draw.integers(0, 256, (48, 96, 3), np.uint8) for _ in range(16 + 8 * number)]
        write_clip(folder / f"{number}.mp4", pictures, 24)
        (folder / f"{number}.txt").write_text(f"The video shows thing {number}", encoding="utf-8")
    return folder


def dataset(folder: Path, **settings: Any) -> DatasetSettings:
    return DatasetSettings(sources=[VideoFolder(folder=str(folder))], **settings)


def family_beside(folder: Path) -> FakeFamily:
    if not (folder.parent / "model").is_dir():
        write_model(folder.parent / "model")
    return FakeFamily(folder.parent / "model")


def show(folder: Path, watcher: Watcher | None = None, seed: int = 0, **settings: Any) -> Preview:
    shown = PreviewSettings(**{name: settings.pop(name) for name in ("clips", "frames", "first") if name in settings})
    captions = CaptionSettings(prefix="zorp", remove_openings=True)
    log = watched(watcher or Watcher())
    return preview_dataset(dataset(folder, **settings), captions, family_beside(folder), folder.parent / "cache", log, shown, seed=seed)


SETTINGS: list[dict[str, Any]] = [
    {"windows": WindowSettings(size=5, stride=2, grouping="independent")},
    {"frame_sample_strategy": "chunk", "buckets": [Bucket(frames=5, height=48, width=48)]},
    {"buckets": [Bucket(frames=9, height=48, width=48), Bucket(frames=17, height=32, width=64)]},
    {"windows": WindowSettings(size=5, stride=4)},
    {"frame_sample_strategy": "random", "variants": 3, "fps": 8.0, "crop_position": "random"},
    {"temporal_augmentation": "crop and reverse", "variants": 2, "frame_dropout_probability": 0.3},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_frames_texts_and_report_are_those_of_training(clips: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    seen = show(clips, seed=5, **settings)
    family = family_beside(clips)
    captions = CaptionSettings(prefix="zorp", remove_openings=True)
    other = TensorCache(tmp_path / "other")
    trained = prepare_dataset(dataset(clips, **settings), captions, family, other, FakeEncoders(), watched(Watcher()), seed=5)
    assert [clip.texts for clip in seen.clips] == [item.captions for item in trained.items] and seen.clips
    assert seen.clips[0].texts == ("zorp Thing 0",)
    encoded = [example.numpy() for example in family.encoded]
    for clip in seen.clips:
        assert clip.frames.shape == (min(4, clip.bucket.frames), clip.bucket.height, clip.bucket.width, 3)
        assert any(len(e) == clip.bucket.frames and np.array_equal(e[list(clip.places)], clip.frames) for e in encoded)
    schedule = ScheduleSettings(batch_size=3, accumulation=2, seed=5)
    assert seen.report.examples_per_epoch == Sampler(trained, 1, 1, 5).steps_per_epoch
    for dataset_, report in ((trained, trained.report), (seen, seen.report)):
        report.describe(Sampler.scheduled(dataset_, schedule))
    assert seen.report.as_dict() == trained.report.as_dict() and seen.report.effective_batch


def test_frames_run_from_the_first_to_the_last_of_the_first_example(clips: Path) -> None:
    [clip] = show(clips, clips=1, frames=3, first=4, windows=WindowSettings(size=9, stride=1)).clips
    assert clip.record.name == "3.mp4" and clip.places == (0, 4, 8)
    assert show(clips, clips=1, frames=16, windows=WindowSettings(size=5, stride=1)).clips[0].places == (0, 1, 2, 3, 4)
    assert show(clips, clips=1, frames=1, windows=WindowSettings(size=5, stride=1)).clips[0].places == (2,)


def test_only_the_shown_clips_are_decoded_and_no_further_than_one_example(clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[tuple[str, int]]()

    def counted(plan: Any, take: Any, check: Callable[[], None]) -> Iterator[tuple[int, np.ndarray]]:
        for number, frames in original(plan, take, check):
            made.append((plan.record.name, number))
            yield number, frames

    original = module.examples
    monkeypatch.setattr(module, "examples", counted)
    seen = show(clips, clips=2, first=2, windows=WindowSettings(size=5, stride=1))
    assert made == [("1.mp4", 0), ("2.mp4", 0)] and seen.first == 2
    assert len(seen.report.kept) == 4 and seen.report.kept[3].windows > 1


def test_clips_left_out_are_listed_with_reason_and_cure(clips: Path) -> None:
    (clips / "broken.mp4").write_bytes(b"no video at all")
    write_clip(clips / "short.mp4", 3)
    seen = show(clips, buckets=[Bucket(frames=5, height=48, width=96)])
    dropped = {entry["name"]: entry for entry in seen.report.overview()["dropped"]}
    assert set(dropped) == {"broken.mp4", "short.mp4"}
    assert all(entry["why"] and entry["cure"] for entry in dropped.values())
    assert "shorter than every bucket" in dropped["short.mp4"]["why"]
    overview = seen.report.overview()
    assert (overview["kept"], overview["skipped"]) == (4, 2) and overview["buckets"] == [("5x48x96", 4)]


def test_a_clip_that_cannot_be_decoded_is_reported_not_shown(clips: Path) -> None:
    path = write_clip(clips / "4.avi", 17, codec="rawvideo")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    seen = show(clips, buckets=[Bucket(frames=5, height=48, width=48)], clips=9)
    whole = show(clips, buckets=[Bucket(frames=17, height=48, width=48)], clips=9)
    assert {clip.record.name for clip in seen.clips} >= {"0.mp4", "3.mp4"}
    assert "4.avi" in {clip.name for clip in whole.report.skipped}


def test_a_dataset_of_bad_clips_alone_is_shown_with_its_reasons(tmp_path: Path) -> None:
    write_clip(tmp_path / "clips/a.mp4", 2)
    seen = show(tmp_path / "clips", buckets=[Bucket(frames=17, height=48, width=64)])
    assert seen.clips == [] and [clip.cure != "" for clip in seen.report.skipped] == [True]
    assert contact_sheet(seen.clips).shape[1] == 1280


def test_cancel_stops_between_frames(clips: Path) -> None:
    watcher = Watcher(lambda event: isinstance(event, Progress) and event.unit == "clips decoded")
    with pytest.raises(Interrupted):
        show(clips, watcher)


def test_no_clips_and_parquet_alone_are_refused(tmp_path: Path) -> None:
    (tmp_path / "clips").mkdir()
    with pytest.raises(UserError, match="no clip was found"):
        show(tmp_path / "clips")
    parquet = DatasetSettings(sources=[ParquetFolder(folder=str(tmp_path))])
    with pytest.raises(UserError, match="no frames to look at"):
        preview_dataset(
            parquet, CaptionSettings(), family_beside(tmp_path / "clips"), tmp_path / "cache", watched(Watcher()), PreviewSettings()
        )


def test_first_clip_beyond_the_end_shows_the_last(clips: Path) -> None:
    seen = show(clips, first=99)
    assert seen.first == 4 and [clip.record.name for clip in seen.clips] == ["3.mp4"]


def test_look_alikes_are_told_among_what_is_encoded_or_shown_and_no_weights_are_read(clips: Path) -> None:
    picture = np.random.default_rng(9).integers(0, 255, (3, 6, 3), np.uint8).repeat(16, 0).repeat(16, 1)
    for name, crf in (("a.mp4", "4"), ("b.avi", "")):
        write_clip(clips / name, [picture] * 16, 24, codec="libx264" if crf else "mpeg4")
    settings = {"clips": 1, "first": 5, "buckets": [Bucket(frames=9, height=48, width=96)]}
    seen = show(clips, **settings)
    assert [clip.record.name for clip in seen.clips] == ["a.mp4"] and (seen.report.alike, seen.report.compared) == ([], 1)
    assert "look-alikes: 1 of 6 clips are compared" in seen.report.lines()
    assert not any("model.safetensors" in name for name in json.loads((clips.parent / "cache/index.json").read_text(encoding="utf-8")))
    family, captions = family_beside(clips), CaptionSettings(prefix="zorp", remove_openings=True)
    more = dataset(clips, buckets=settings["buckets"])
    prepare_dataset(more, captions, family, TensorCache(clips.parent / "cache"), FakeEncoders(), watched(Watcher()))
    seen = show(clips, **settings)
    assert (seen.report.alike, seen.report.compared) == ([["a.mp4", "b.avi"]], 6) and "a.mp4 and b.avi" in str(seen.report.notices)
    assert not any("are compared" in line for line in seen.report.lines())
    (family.files.root / "vae/model.safetensors").write_bytes(b"another")
    assert show(clips, **settings).report.compared == 1


def test_strip_and_sheet(clips: Path) -> None:
    seen = show(clips, frames=4, buckets=[Bucket(frames=5, height=48, width=96)])
    frames = seen.clips[0].frames
    assert np.array_equal(strip(frames), np.concatenate(list(frames), axis=1))
    large = torch.zeros(2, 960, 1920, 3, dtype=torch.uint8).numpy()
    assert strip(large).shape == (LONGEST_SIDE // 2, 2 * LONGEST_SIDE, 3)
    assert facts(seen.clips[0]) == ["5x48x96", "16 fps"]
    sheet = contact_sheet(seen.clips)
    assert sheet.shape[1:] == (1280, 3) and sheet.dtype == np.uint8
    assert [sheet[24, 24 + place * 309].tolist() for place in range(4)] == frames[:, 0, 0].tolist()


def test_captions_of_folders_have_a_place_to_be_edited(tmp_path: Path) -> None:
    for name in ("a.mp4", "sub/b.c.mp4"):
        write_clip(tmp_path / "videos" / name, 5)
    (tmp_path / "captions").mkdir()
    (tmp_path / "captions/A.TXT").write_text("capital", encoding="utf-8")
    (tmp_path / "videos/a.caption").write_text("small", encoding="utf-8")
    places = [
        [record.sidecar.relative_to(tmp_path).as_posix() if record.sidecar else "" for record in scan([source]).clips]
        for source in (PairedFolders(folder=str(tmp_path)), VideoFolder(folder=str(tmp_path / "videos")))
    ]
    assert places == [["captions/A.TXT", "captions/sub/b.c.txt"], ["videos/a.caption", "videos/sub/b.c.txt"]]


def test_the_first_text_is_kept_and_the_file_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes("café".encode("cp1252"))
    assert current_caption(file) == "café"
    assert write_caption(file, " two\n lines ") == "two lines" and write_caption(file, "three") == "three"
    assert file.read_bytes() == b"three\n" and (tmp_path / "a.txt.bak").read_bytes() == "café".encode("cp1252")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "a.txt.bak"]
    assert write_caption(file, "fo\ud800ur") == "fo?ur" and file.read_bytes() == b"fo?ur\n"  # as JSON from a browser may hold


def test_long_captions_are_cut_to_two_lines(clips: Path) -> None:
    for number, text in enumerate(("word " * 200, "w" * 900)):
        (clips / f"{number}.txt").write_text(text, encoding="utf-8")
    seen = show(clips, clips=2, buckets=[Bucket(frames=5, height=48, width=96)])
    sheet = contact_sheet(seen.clips)
    assert sheet.shape[0] == 24 + 2 * (152 + 8 + 3 * 24 + 24)
    assert (sheet[:, -24:] == sheet[0, 0]).all()  # nothing runs into the margin
