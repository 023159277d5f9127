"""One test for each public bug report on caches and paths that is kept as a case (rows K and W), named by its row."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch

from tests.data.synthetic import FakeFamily
from tests.data.test_prepare import Setup
from trainer.job import Bucket, TrainingJob, WindowSettings
from trainer.source_settings import SOURCES


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def test_k1_another_text_encoder_width_reaches_the_dataset(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    setup.clip("a.mp4")
    setup.prepare()
    (setup.model / "text_encoder/model.safetensors").write_bytes(b"wider")
    monkeypatch.setattr(FakeFamily, "encode_text", lambda self, encoder, text: self.texts.append(text) or {"embeds": torch.ones(3, 2560)})
    dataset = setup.prepare()
    assert setup.work == (0, 2) and dataset.text("a thing")["embeds"].shape == (3, 2560)


def test_k2_two_families_share_a_cache_folder(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same files stand for both encoders: the family alone keeps their entries apart."""
    setup.clip("a.mp4")
    first = setup.prepare()
    init, encode = FakeFamily.__init__, FakeFamily.encode_video

    def other(self: FakeFamily, folder: Path) -> None:
        init(self, folder)
        self.spec = replace(self.spec, family="other", latent_channels=6)

    def doubled(self: FakeFamily, vae: torch.nn.Module, frames: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"latents": encode(self, vae, frames)["latents"].repeat(2, 1, 1, 1)}

    with monkeypatch.context() as patch:
        patch.setattr(FakeFamily, "__init__", other)
        patch.setattr(FakeFamily, "encode_video", doubled)
        second = setup.prepare()
        assert setup.work == (1, 2)
        assert second.latents(second.items[0])["latents"].shape[0] == 6
    again = setup.prepare()
    assert setup.work == (0, 0) and again.latents(again.items[0])["latents"].shape[0] == 3
    assert again.fingerprint == first.fingerprint != second.fingerprint


def test_k4_what_lies_in_the_cache_is_not_the_dataset(setup: Setup) -> None:
    for number, name in enumerate(("a.mp4", "b.mp4", "c.mp4")):
        setup.clip(name, 9 + 4 * number)
    setup.prepare()
    (setup.clips / "b.mp4").unlink()
    dataset = setup.prepare()
    assert [item.name for item in dataset.items] == ["a.mp4", "c.mp4"] and setup.work == (0, 0)
    assert len(list((setup.cache / "clips").rglob("*.safetensors"))) == 3  # b's is kept, should b come back


def test_k5_one_new_file_is_one_encoding_and_another_size_is_all(setup: Setup) -> None:
    for number in range(4):
        setup.clip(f"{number}.mp4", 9 + 2 * number)
    setup.prepare()
    setup.clip("new.mp4", 19)
    setup.prepare()
    assert setup.work == (1, 0)
    setup.settings = {"buckets": [Bucket(frames=9, height=32, width=48)]}
    setup.prepare()
    assert setup.work == (5, 0)


MODES = [
    {"windows": WindowSettings(size=9)},
    {"windows": WindowSettings(size=9, stride=4)},
    {"frame_sample_strategy": "chunk", "buckets": [Bucket(frames=9, height=48, width=64)]},
    {"temporal_augmentation": "reverse"},
    {"frame_dropout_probability": 0.4},
]


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_k8_a_mode_set_later_is_encoded_then_and_both_stay(setup: Setup, mode: dict) -> None:
    """Whatever is switched between two runs, every example of every variant is there with the shape that it says."""
    setup.clip("a.mp4", 17)
    for settings in ({}, mode, {}, mode):
        setup.settings, before = settings, set(setup.cache.rglob("*.safetensors"))
        dataset = setup.prepare()
        added = set(setup.cache.rglob("*.safetensors")) - before
        assert bool(setup.work[0]) == bool(added)
        for item in dataset.items:
            for window in range(item.windows):
                assert dataset.latents(item, window)["latents"].shape[1] == (item.size.frames - 1) // 4 + 1
    assert setup.work == (0, 0)  # the second time of either


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(setup: Setup) -> None:
    setup.clip("a.mp4")
    setup.prepare()
    (entry,) = (setup.cache / "clips").rglob("*.safetensors")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left, living = (entry.with_name(f".{entry.name}.{process}.part") for process in (ended.pid, os.getppid()))
    for file in (left, living):
        file.write_bytes(entry.read_bytes()[:100])
    whole = entry.read_bytes()
    entry.unlink()
    setup.prepare()
    assert entry.read_bytes() == whole and not left.exists() and living.exists()


# rows W ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [r"C:\new\users", r"\\server\tools\räume", r"D:\a b\[x] 'y'"])
def test_w1_windows_paths_round_trip_in_every_path_setting(tmp_path: Path, path: str) -> None:
    """Pasted into every text setting of every source, the model and the LoRA to go on from: the job file gives them back."""
    sources = [
        {"kind": kind, **{name: path for name, field in part.model_fields.items() if field.annotation is str}}
        for kind, part in SOURCES.items()
    ]
    assert all(path in source.values() for source in sources)
    samples = {"prompts": [{"prompt": path, "image": path}]}
    given = {"model": {"source": path}, "dataset": {"sources": sources}, "adapter": {"continue_from": path}, "samples": samples}
    job = TrainingJob.parse(given)
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job.model_dump(mode="json")), encoding="utf-8")
    back = TrainingJob.load(file)
    assert back == job and (back.model.source, back.adapter.continue_from) == (path, path)
    assert (back.samples.prompts[0].prompt, back.samples.prompts[0].image) == (path, path)
    for source, asked in zip(back.dataset.sources, sources, strict=True):
        assert {name: getattr(source, name) for name in asked} == asked


@pytest.mark.skipif(sys.platform != "linux", reason="what is mapped is read from /proc")
def test_w2_no_file_stays_mapped_after_it_was_read(setup: Setup) -> None:
    """Windows lets no mapped file be replaced: tensors in use are copies, and the entry can be written again."""
    setup.clip("a.mp4")
    dataset = setup.prepare()
    held = dataset.latents(dataset.items[0]), dataset.text("a thing")
    mapped = Path("/proc/self/maps").read_text()
    assert all(held) and not [file for file in setup.cache.rglob("*.safetensors") if str(file) in mapped]


@pytest.mark.parametrize("place", ["Alber F", "ключ é 猫 [1] 100%d", "/".join(["x" * 60] * 5)])
def test_w4_clips_cache_and_model_in_folders_of_such_names(tmp_path: Path, place: str) -> None:
    root = tmp_path / place
    root.mkdir(parents=True)
    setup = Setup(root)
    setup.clip("a.mp4", caption="a thing")
    dataset = setup.prepare()
    assert dataset.latents(dataset.items[0])["latents"].shape[0] == 3 and dataset.items[0].captions == ("a thing",)
    setup.prepare()
    assert setup.work == (0, 0)


def test_w6_clips_are_decoded_in_threads_of_this_process(setup: Setup) -> None:
    """A process for each worker would load CUDA's libraries once more: there is none."""
    for number in range(3):
        setup.clip(f"{number}.mp4", 9 + 4 * number)
    children, encode = [], FakeFamily.encode_video

    def watched(self: FakeFamily, vae: torch.nn.Module, frames: torch.Tensor) -> dict[str, torch.Tensor]:
        children.extend(psutil.Process().children(recursive=True))
        return encode(self, vae, frames)

    before = psutil.Process().children(recursive=True)
    setup.settings = {"dataloader_threads": 3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeFamily, "encode_video", watched)
        setup.prepare()
    assert setup.work[0] == 3 and set(children) <= set(before)
