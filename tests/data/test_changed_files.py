"""Files that change while a dataset is prepared: what is cached under a content is of that content, whatever happens meanwhile."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.data.synthetic import FakeEncoders, FakeFamily, grey, write_clip
from tests.data.test_prepare import Setup
from trainer.data import known_probes, scenes
from trainer.data.content import ContentIndex
from trainer.data.dataset import Dataset
from trainer.data.sources.record import ChangedFile
from trainer.errors import UserError

BLACK, WHITE = ([grey(level)] * 5 for level in (0, 20))


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    made = Setup(tmp_path)
    made.settings = {"dataloader_threads": 0}
    write_clip(made.clips / "a.mp4", 5)
    write_clip(made.clips / "b.mp4", BLACK)
    write_clip(tmp_path / "white.mp4", WHITE)
    return made


def replace(setup: Setup, name: str = "b.mp4") -> None:
    """Puts the white clip in the place of a clip, as programs that save files do."""
    shutil.copy(setup.clips.parent / "white.mp4", setup.clips.parent / "beside.mp4")
    os.replace(setup.clips.parent / "beside.mp4", setup.clips / name)


def once(action: Callable[[], None]) -> Callable[[], None]:
    done = []
    return lambda: None if done else (done.append(True), action())[1]


def while_encoding(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    encode = FakeFamily.encode_video

    def encoding(family: FakeFamily, vae: torch.nn.Module, frames: torch.Tensor) -> dict[str, torch.Tensor]:
        action()
        return encode(family, vae, frames)

    monkeypatch.setattr(FakeFamily, "encode_video", encoding)


def level(dataset: Dataset, name: str) -> float:
    (item,) = (item for item in dataset.items if item.name == name)
    return dataset.latents(item)["latents"].mean().item()


@pytest.mark.parametrize("threads", [0, 2])
def test_a_clip_that_is_replaced_before_it_is_decoded(setup: Setup, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    setup.settings = {"dataloader_threads": threads}
    shutil.copy(setup.clips / "b.mp4", setup.clips.parent / "old.mp4")
    with monkeypatch.context() as patch:
        while_encoding(patch, once(lambda: replace(setup)))
        found = level(setup.prepare(), "b.mp4")  # as it is now, unless a thread had decoded it before
        assert found == pytest.approx(grey(20).mean(), abs=3) or (threads and found == pytest.approx(grey(0).mean(), abs=3))
    shutil.copy(setup.clips.parent / "old.mp4", setup.clips / "b.mp4")
    assert level(setup.prepare(), "b.mp4") == pytest.approx(grey(0).mean(), abs=3)  # and the old one as it was


def test_a_copy_of_a_clip_that_is_replaced_keeps_its_own_frames(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(setup.clips / "b.mp4", setup.clips / "c.mp4")
    while_encoding(monkeypatch, once(lambda: replace(setup)))
    dataset = setup.prepare()
    assert level(dataset, "b.mp4") == pytest.approx(grey(20).mean(), abs=3)
    assert level(dataset, "c.mp4") == pytest.approx(grey(0).mean(), abs=3)


def test_a_clip_that_changes_again_and_again_is_left_out(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    while_encoding(monkeypatch, lambda: replace(setup))
    dataset = setup.prepare()
    assert [item.name for item in dataset.items] == ["a.mp4"]
    assert [(clip.name, clip.skipped) for clip in dataset.report.skipped] == [("b.mp4", "was changed while it was read")]


def test_a_clip_that_is_deleted_before_it_is_decoded_is_left_out(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    while_encoding(monkeypatch, once((setup.clips / "b.mp4").unlink))
    dataset = setup.prepare()
    assert [item.name for item in dataset.items] == ["a.mp4"] and "No such file" in dataset.report.skipped[0].skipped


def test_a_clip_that_is_replaced_by_a_broken_one_is_left_out(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    while_encoding(monkeypatch, once(lambda: (setup.clips / "b.mp4").write_bytes(b"nothing") and None))
    dataset = setup.prepare()
    assert [item.name for item in dataset.items] == ["a.mp4"] and "cannot be read" in dataset.report.skipped[0].skipped


@pytest.mark.parametrize("stage", ["probing", "scene cuts", "probing again and again"])
def test_a_clip_that_is_replaced_while_it_is_planned(setup: Setup, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    (setup.clips / "a.mp4").unlink()
    write_clip(setup.clips.parent / "white.mp4", [grey(20)] * 9)  # a longer one
    act = (lambda: replace(setup)) if "again" in stage else once(lambda: replace(setup))
    if stage == "scene cuts":
        pytest.importorskip("scenedetect")
        setup.settings["scene_cuts"] = "split"
        decode = scenes.decode_frames
        monkeypatch.setattr(scenes, "decode_frames", lambda *rest: (act(), decode(*rest))[1])
    else:
        probe = known_probes.probe
        monkeypatch.setattr(known_probes, "probe", lambda path: (probe(path), act())[0])
    if "again" in stage:
        with pytest.raises(UserError, match="was changed while it was read"):
            setup.prepare()
        return
    (item,) = setup.prepare().items
    assert item.size.frames == 9
    monkeypatch.undo()
    assert setup.prepare().items[0].size.frames == 9 and setup.work == (0, 0)
    write_clip(setup.clips / "b.mp4", BLACK)
    assert setup.prepare().items[0].size.frames == 5  # nothing of the new file was kept under the old one's name


def test_a_file_that_changes_within_the_clocks_tick_is_noticed(tmp_path: Path) -> None:
    """Two writes that leave the same size and times differ in their bytes only."""
    file = tmp_path / "x"
    file.write_bytes(b"one")
    content = ContentIndex(tmp_path / "index.json").content(file)
    assert not content.settled and content.is_of(file)
    frozen = type(content)("another digest", content.state, False)
    with pytest.raises(ChangedFile), frozen.steady(file):
        pass


def test_an_encoder_that_changes_while_it_is_loaded_is_told(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    load = FakeEncoders.vae
    vae = setup.model / "vae" / "model.safetensors"
    monkeypatch.setattr(FakeEncoders, "vae", lambda encoders: (vae.write_bytes(b"v2"), load(encoders))[1])
    with pytest.raises(UserError, match="was changed while the model was read"):
        setup.prepare()
    assert not list((setup.cache / "clips").rglob("*.safetensors"))
