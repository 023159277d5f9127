"""prepare_dataset with fake encoders: what is kept, what is encoded again, what the user is told."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.footage import encode
from tests.data.synthetic import FakeEncoders, FakeFamily, Watcher, grey, index_of, watched, write_clip, write_model, write_tagged
from trainer.data.cache import TensorCache
from trainer.data.dataset import Dataset
from trainer.data.prepare import prepare_dataset
from trainer.errors import Interrupted, UserError
from trainer.events import Progress
from trainer.job import Bucket, CaptionSettings, DatasetSettings, VideoFolder, WindowSettings
from trainer.source_settings import VideoList


class Setup:
    """A folder of clips, a fake model and a cache; each `prepare` is a new run over them."""

    def __init__(self, root: Path) -> None:
        self.clips, self.cache, self.model = root / "my clips", root / "cache", root / "model"
        self.clips.mkdir()
        self.settings: dict = {}
        self.captions: dict = {}
        self.seed, self.watcher = 0, Watcher()
        write_model(self.model)

    def clip(self, name: str, frames: int = 17, caption: str | None = "a thing", **kwargs: object) -> Path:
        path = write_clip(self.clips / name, frames, **kwargs)
        if caption is not None:
            path.with_suffix(".txt").write_text(caption, encoding="utf-8")
        return path

    def prepare(self) -> Dataset:
        self.family, self.encoders = FakeFamily(self.model), FakeEncoders()
        self.watcher.notices.clear()
        settings = DatasetSettings(sources=[VideoFolder(folder=str(self.clips))], **self.settings)
        captions = CaptionSettings(**self.captions)
        self.store = TensorCache(self.cache)
        return prepare_dataset(settings, captions, self.family, self.store, self.encoders, watched(self.watcher), seed=self.seed)

    @property
    def work(self) -> tuple[int, int]:
        """Clips or windows, and texts, encoded by the last `prepare`."""
        return len(self.family.encoded), len(self.family.texts)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def test_clips_become_items_with_latents_and_texts(setup: Setup) -> None:
    setup.clip("b.mp4", 20, caption="second")
    setup.clip("a.mp4", caption="first")
    setup.captions = {"prefix": "zorp,"}
    dataset = setup.prepare()
    assert [(item.name, *item.captions, str(item.size)) for item in dataset.items] == [
        ("a.mp4", "zorp, first", "17x48x64"),
        ("b.mp4", "zorp, second", "17x48x64"),
    ]
    latents = dataset.latents(dataset.items[0])["latents"]
    assert latents.shape == (3, 5, 6, 8)
    assert latents[0, :, 0, 0].tolist() == pytest.approx([grey(4 * i).mean() for i in range(5)], abs=3)
    assert bytes(dataset.text("zorp, first")["embeds"].byte().tolist()) == b"zorp, first"
    assert dataset.text("")["embeds"].tolist() == [0]
    with pytest.raises(KeyError):
        dataset.text("never added")
    dataset.add_text("a prompt")
    assert dataset.text("a prompt")["embeds"].shape == (8,)
    assert setup.work == (2, 4) and setup.encoders.parked == ["vae", "text", "text"]
    assert dataset.sample_size == Bucket(frames=17, height=48, width=64)


def test_second_run_loads_no_encoder(setup: Setup) -> None:
    setup.clip("a.mp4")
    first = setup.prepare()
    again = setup.prepare()
    assert setup.encoders.loaded == [] and setup.work == (0, 0)
    assert again.fingerprint == first.fingerprint
    assert torch.equal(again.latents(again.items[0])["latents"], first.latents(first.items[0])["latents"])


def test_caption_edit_encodes_one_text(setup: Setup) -> None:
    setup.clip("a.mp4", caption="first")
    path = setup.clip("b.mp4", caption="second")
    before = setup.prepare().fingerprint
    path.with_suffix(".txt").write_text("changed", encoding="utf-8")
    dataset = setup.prepare()
    assert setup.encoders.loaded == ["text"] and setup.family.texts == ["changed"]
    assert dataset.items[1].captions == ("changed",) and dataset.fingerprint != before


def test_clip_replaced_under_its_name_with_the_same_size_and_time_is_encoded_again(setup: Setup) -> None:
    path = setup.clip("a.avi", codec="rawvideo")
    stat = path.stat()
    old = setup.prepare()
    write_clip(path, [grey(i + 3) for i in range(17)], codec="rawvideo")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_size == stat.st_size
    new = setup.prepare()
    assert setup.work == (1, 0) and new.fingerprint != old.fingerprint
    assert not torch.equal(new.latents(new.items[0])["latents"], old.latents(old.items[0])["latents"])


def test_new_clip_is_the_only_one_encoded_and_deleted_clip_is_gone(setup: Setup) -> None:
    setup.clip("a.mp4")
    setup.clip("b.mp4", 13)
    setup.prepare()
    added = setup.clip("c.mp4", 9, caption="new")
    assert len(setup.prepare().items) == 3 and setup.work == (1, 1)
    added.unlink()
    assert [item.name for item in setup.prepare().items] == ["a.mp4", "b.mp4"] and setup.work == (0, 0)


def test_moved_or_copied_clip_is_not_encoded_again(setup: Setup) -> None:
    path = setup.clip("a.mp4")
    setup.prepare()
    shutil.copy(path, setup.clips / "copy.mp4")
    path.rename(setup.clips / "renamed.mp4")
    assert len(setup.prepare().items) == 2 and setup.encoders.loaded == []


@pytest.mark.parametrize(
    "settings",
    [{"fps": 8.0}, {"buckets": [Bucket(frames=9, height=48, width=64)]}, {"buckets": [Bucket(frames=17, height=32, width=64)]}],
)
def test_shaping_settings_encode_again_and_back_is_still_cached(setup: Setup, settings: dict) -> None:
    setup.clip("a.mp4")
    before = setup.prepare().fingerprint
    setup.settings = settings
    assert setup.prepare().fingerprint != before and setup.work == (1, 0)
    setup.settings = {}
    assert setup.prepare().fingerprint == before and setup.work == (0, 0)


def test_window_settings_encode_again(setup: Setup) -> None:
    setup.clip("a.mp4")
    setup.settings = {"windows": WindowSettings(size=13)}
    setup.prepare()
    for changed in ({"size": 9}, {"size": 13, "stride": 2}):
        setup.settings = {"windows": WindowSettings(**changed)}
        setup.prepare()
        assert setup.work[0] == len(range(0, 17 - changed["size"] + 1, changed.get("stride", 1)))


@pytest.mark.parametrize(("part", "work"), [("vae", (1, 0)), ("text_encoder", (0, 2)), ("tokenizer", (0, 2))])
def test_other_encoder_weights_encode_again(setup: Setup, part: str, work: tuple[int, int]) -> None:
    setup.clip("a.mp4")
    before = setup.prepare().fingerprint
    (setup.model / part / "model.safetensors").write_bytes(b"v2")  # as long as before
    assert setup.prepare().fingerprint != before and setup.work == work


def test_other_precision_encodes_texts_again_but_no_clip(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """The VAE has a precision of its own, whatever the run computes in."""
    setup.clip("a.mp4")
    setup.prepare()
    monkeypatch.setattr(FakeEncoders, "__init__", bfloat16(FakeEncoders.__init__))
    setup.prepare()
    assert setup.work == (0, 2)


def bfloat16(init):
    def changed(self) -> None:
        init(self)
        self.compute.dtype = torch.bfloat16

    return changed


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def garble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-10] ^= 255
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [cut, garble, lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"x" * 99)])
@pytest.mark.parametrize(("kind", "work"), [("clips", (1, 0)), ("texts", (0, 2))])
def test_damaged_cache_file_is_made_again(setup: Setup, damage, kind: str, work: tuple[int, int]) -> None:
    setup.clip("a.mp4")
    good = setup.prepare()
    expected = good.latents(good.items[0])["latents"], good.text("a thing")["embeds"]
    for path in (setup.cache / kind).rglob("*.safetensors"):
        damage(path)
    dataset = setup.prepare()
    assert setup.work == work
    assert torch.equal(dataset.latents(dataset.items[0])["latents"], expected[0])
    assert torch.equal(dataset.text("a thing")["embeds"], expected[1])


def test_damaged_index_is_no_trouble(setup: Setup) -> None:
    setup.clip("a.mp4")
    setup.prepare()
    for content in ("{", "[]", '{"a": 1}', json.dumps({str((setup.clips / "a.mp4").absolute()): "x"})):
        (setup.cache / "index.json").write_text(content, encoding="utf-8")
        assert len(setup.prepare().items) == 1 and setup.work == (0, 0)


def test_index_spares_reading_old_files_again(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer.data import content

    setup.clip("a.mp4")
    monkeypatch.setattr(content, "_RACY_NS", -(10**12))
    setup.prepare()
    monkeypatch.setattr(content, "file_digest", lambda path, check: pytest.fail(f"{path} was read again"))
    assert len(setup.prepare().items) == 1


def test_cache_file_lost_during_the_run_is_a_user_error(setup: Setup) -> None:
    setup.clip("a.mp4")
    dataset = setup.prepare()
    shutil.rmtree(setup.cache / "clips")
    with pytest.raises(UserError, match=r"safetensors.*Run again"):
        dataset.latents(dataset.items[0])


def test_unusable_clips_are_skipped_and_named(setup: Setup) -> None:
    setup.clip("good.mp4")
    (setup.clips / "bad.mp4").write_bytes(b"nothing")
    (setup.clips / "empty.mkv").write_bytes(b"")
    setup.settings = {"buckets": [Bucket(frames=17, height=48, width=64)]}
    setup.clip("short.mp4", 16)
    dataset = setup.prepare()
    assert [item.name for item in dataset.items] == ["good.mp4"]
    reasons = {clip.name: clip.skipped for clip in dataset.report.skipped}
    assert sorted(reasons) == ["bad.mp4", "empty.mkv", "short.mp4"]
    assert "16 frames" in reasons["short.mp4"] and "13 is the largest that fits" in reasons["short.mp4"]
    assert all(any(name in notice for notice in setup.watcher.notices) for name in reasons)


def test_clip_that_breaks_off_while_decoding_is_skipped(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer.data import clips
    from trainer.data.sources.record import UnusableClip

    decode = clips.decode_frames

    def broken(path: Path, *rest: object) -> Iterator[np.ndarray]:
        if path.name == "a.mp4":
            raise UnusableClip("decoding fails after frame 3 of 17")
        return decode(path, *rest)

    monkeypatch.setattr(clips, "decode_frames", broken)
    setup.clip("a.mp4")
    setup.clip("b.mp4", 13)
    dataset = setup.prepare()
    assert [item.name for item in dataset.items] == ["b.mp4"] and len(dataset.report.kept) == 1
    assert dataset.report.skipped[0].skipped == "decoding fails after frame 3 of 17"


def test_nothing_usable_is_an_error_with_every_reason(setup: Setup) -> None:
    setup.settings = {"buckets": [Bucket(frames=33, height=48, width=64)]}
    setup.clip("a.mp4")
    (setup.clips / "b.mp4").write_bytes(b"nothing")
    with pytest.raises(UserError) as caught:
        setup.prepare()
    text = str(caught.value)
    assert "a.mp4" in text and "17 is the largest that fits" in text and "b.mp4" in text and "cannot be read" in text


def test_folder_of_pictures_says_what_it_saw(setup: Setup) -> None:
    for name in ("a.png", "b.PNG", "c.txt"):
        (setup.clips / name).write_bytes(b"x")
    with pytest.raises(UserError, match=r"1 \.txt|2 \.png") as caught:
        setup.prepare()
    assert "2 .png" in str(caught.value) and ".mp4" in str(caught.value)


def test_no_folder_is_an_error(setup: Setup) -> None:
    fake = FakeFamily(setup.model), TensorCache(setup.cache), FakeEncoders(), watched(setup.watcher)
    with pytest.raises(UserError, match=r"dataset\.sources"):
        prepare_dataset(DatasetSettings(), CaptionSettings(), *fake)


def test_without_buckets_a_short_clip_takes_its_own_length(setup: Setup) -> None:
    setup.clip("long.mp4", 40)
    setup.clip("short.mp4", 12)
    dataset = setup.prepare()
    assert {item.name: item.size.frames for item in dataset.items} == {"long.mp4": 17, "short.mp4": 9}
    assert [clip.name for clip in dataset.report.kept if clip.shortened] == ["long.mp4", "short.mp4"]


def test_retiming_is_in_the_report(setup: Setup) -> None:
    setup.clip("film.mp4", 26, rate=24)
    report = setup.prepare().report
    assert any("26 frames at 24 frames/s -> 17 at 16" in line for line in report.lines())
    clip = report.as_dict()["clips"][0]
    assert (clip["source_frames"], clip["source_fps"], clip["retimed_frames"], clip["used_frames"]) == (26, 24.0, 17, 17)
    assert clip["source_indices"][:6] == (0, 2, 3, 5, 6, 8)
    assert json.loads(json.dumps(report.as_dict()))["buckets"] == {"17x48x64": 1}


def test_hdr_is_in_the_report_and_tone_mapped_without_a_notice(setup: Setup) -> None:
    write_tagged(setup.clips / "a.mp4", (120, 120, 120), color_trc=18, color_primaries=9, colorspace=9)
    report = setup.prepare().report
    assert report.clips[0].hdr == "HLG" and any("HLG tone-mapped to SDR" in line for line in report.lines())
    assert not any("HDR" in notice for notice in setup.watcher.notices)


def test_interlaced_clips_are_told_once(setup: Setup) -> None:
    options = {"preset": "ultrafast", "x264-params": "tff=1", "flags": "+ildct+ilme"}
    for name in ("a.mp4", "b.mp4"):
        encode(setup.clips / name, [grey(index) for index in range(5)], "libx264", "yuv420p", options=options)
    report = setup.prepare().report
    assert [clip.interlaced for clip in report.kept] == [True, True] and "deinterlaced" in report.lines()[-1]
    assert sum("2 of 2 clips are interlaced" in notice for notice in setup.watcher.notices) == 1


def test_missing_captions_are_counted(setup: Setup) -> None:
    setup.clip("a.mp4")
    setup.clip("b.mp4", 13, caption=None)
    dataset = setup.prepare()
    assert dataset.report.captions == {"file": 1, "setting": 0, "none": 1}
    assert any("1 of 2 clips have no caption" in notice for notice in setup.watcher.notices)


def test_cancel_between_clips(setup: Setup) -> None:
    for number, frames in enumerate((17, 13, 9, 5)):
        setup.clip(f"{number}.mp4", frames)
    setup.watcher = Watcher(lambda event: isinstance(event, Progress) and event.unit == "clips encoded" and event.done == 2)
    with pytest.raises(Interrupted):
        setup.prepare()
    assert setup.work[0] == 2 and setup.encoders.parked == ["vae"]
    setup.watcher = Watcher()
    setup.prepare()
    assert setup.work[0] == 2  # the first two were kept


@pytest.mark.parametrize(("frames", "size", "stride"), [(17, 17, 1), (17, 13, 1), (25, 9, 1), (25, 9, 3), (18, 9, 4)])
def test_window_counts_and_frames(setup: Setup, frames: int, size: int, stride: int) -> None:
    setup.clip("a.mp4", frames)
    setup.settings = {"windows": WindowSettings(size=size, stride=stride)}
    dataset = setup.prepare()
    item = dataset.items[0]
    assert item.windows == (frames - size) // stride + 1
    assert stride > 1 or item.windows == frames - size + 1
    assert item.size.frames == size
    for window, encoded in enumerate(setup.family.encoded):
        assert [index_of(frame) for frame in encoded] == list(range(window * stride, window * stride + size))
        first = dataset.latents(item, window)["latents"][0, 0, 0, 0].item()
        assert first == pytest.approx(grey(window * stride).mean(), abs=3)
    assert len(list((setup.cache / "clips").rglob("*.safetensors"))) == 1


def test_windows_slide_over_a_bucket_at_most(setup: Setup) -> None:
    setup.clip("a.mp4", 24)
    setup.clip("b.mp4", 15)
    setup.settings = {"windows": WindowSettings(size=9), "buckets": [Bucket(frames=20, height=48, width=64)]}
    assert {item.name: item.windows for item in setup.prepare().items} == {"a.mp4": 12, "b.mp4": 7}


def test_window_is_rounded_with_a_notice(setup: Setup) -> None:
    setup.clip("a.mp4", 17)
    setup.settings = {"windows": WindowSettings(size=12)}
    assert setup.prepare().items[0].windows == 9
    assert any("12 frames were rounded to 9" in notice for notice in setup.watcher.notices)


def test_window_longer_than_a_clip_skips_it_and_longer_than_all_is_an_error(setup: Setup) -> None:
    setup.clip("a.mp4", 17)
    short = setup.clip("b.mp4", 8)
    setup.settings = {"windows": WindowSettings(size=13)}
    dataset = setup.prepare()
    assert len(dataset.items) == 1 and "5 is the largest that fits" in dataset.report.skipped[0].skipped
    (setup.clips / "a.mp4").unlink()
    assert short.exists()
    with pytest.raises(UserError, match="window of 13; 5 is the largest"):
        setup.prepare()


def test_window_longer_than_every_bucket_is_an_error(setup: Setup) -> None:
    setup.clip("a.mp4", 17)
    setup.settings = {"windows": WindowSettings(size=13), "buckets": [Bucket(frames=10, height=48, width=64)]}
    with pytest.raises(UserError, match="Use a window of 9"):
        setup.prepare()


def test_values_that_are_not_finite_are_not_cached(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    setup.clip("a.mp4")
    monkeypatch.setattr(FakeFamily, "encode_video", lambda *args: {"latents": torch.full((3, 5, 6, 8), torch.nan)})
    with pytest.raises(UserError, match="not finite"):
        setup.prepare()
    assert not list(setup.cache.rglob("*.safetensors"))


def test_full_disk_is_told(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    from trainer.data import cache

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    setup.clip("a.mp4")
    monkeypatch.setattr(cache, "write_bytes", full)
    with pytest.raises(UserError, match="disk is full"):
        setup.prepare()


def test_clips_that_a_list_names_wrongly_are_skipped_with_list_and_line(setup: Setup) -> None:
    setup.clip("good.mp4", caption=None)
    (setup.clips / "videos.txt").write_text("gone.mp4\ngood.mp4\n", encoding="utf-8")
    settings = DatasetSettings(sources=[VideoList(folder=str(setup.clips), weight=2.0)])
    fake = FakeFamily(setup.model), TensorCache(setup.cache), FakeEncoders(), watched(setup.watcher)
    dataset = prepare_dataset(settings, CaptionSettings(), *fake)
    assert [(item.name, item.weight) for item in dataset.items] == [("good.mp4", 2.0)]
    assert [(clip.name, clip.skipped) for clip in dataset.report.skipped] == [
        ("gone.mp4", f"there is no such file (line 1 of {setup.clips / 'videos.txt'})")
    ]
    assert any("gone.mp4" in notice and "line 1" in notice for notice in setup.watcher.notices)
    (setup.clips / "good.mp4").unlink()
    with pytest.raises(UserError, match=r"line 1 of .*\n.*line 2 of"):
        prepare_dataset(settings, CaptionSettings(), *fake)


def test_entries_without_a_look_are_used_as_they_are_and_not_compared(setup: Setup) -> None:
    picture = np.random.default_rng(0).integers(0, 255, (3, 4, 3), np.uint8).repeat(16, 0).repeat(16, 1)
    for name, codec in (("a.mp4", "libx264"), ("b.avi", "mpeg4")):
        write_clip(setup.clips / name, [picture] * 17, codec=codec)
    first = setup.prepare()
    assert (first.report.alike, first.report.compared) == ([["a.mp4", "b.avi"]], 2)
    for item in first.items:
        older = {name: tensor for name, tensor in setup.store.read("clips", item.key).items() if name != "thumbnails"}
        assert len(older) == 1
        setup.store.write("clips", item.key, older)
    again = setup.prepare()
    assert setup.work == (0, 0) and (again.report.alike, again.report.compared) == ([], 0)
