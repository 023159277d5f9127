"""Texts that are encoded with the first frame of their example: which are encoded, with what picture, and which again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data import test_prepare
from tests.data.footage import scene
from tests.data.synthetic import FakeFamily, write_clip
from trainer.data.dataset import Dataset
from trainer.data.pictures import Picture, pixel_digest
from trainer.errors import UserError
from trainer.job import WindowSettings


class Seeing(FakeFamily):
    """A family whose texts see the first frame; an embedding is the text's bytes and the picture's mean."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.spec = replace(self.spec, text_sees_image=True)
        self.pictures: list[str] = []  # their hashes, in the order of the texts

    def encode_text(self, encoder: object, text: str, image: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        self.texts.append(text)
        self.pictures.append("" if image is None else digest(image))
        mean = 0.0 if image is None else image.float().mean().item()
        return {"embeds": torch.tensor([mean, *text.encode()])}


class Setup(test_prepare.Setup):
    """The same with a family whose texts see a picture."""

    def prepare(self) -> Dataset:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(test_prepare, "FakeFamily", Seeing)
            return super().prepare()

    @property
    def firsts(self) -> set[str]:
        """Hashes of the first frames of all examples that the last `prepare` encoded."""
        return {digest(frames[0]) for frames in self.family.encoded}


def digest(frame: torch.Tensor) -> str:
    return pixel_digest(frame.numpy()).hex()


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    made = Setup(tmp_path)
    for number, name in enumerate(("a", "b")):
        write_clip(made.clips / f"{name}.mp4", [scene(n + 30 * number, 48, 64) for n in range(21)])
        (made.clips / f"{name}.txt").write_text(f"caption {name}", encoding="utf-8")
    return made


def test_each_clip_has_its_texts_and_the_empty_one_with_its_first_frame(setup: Setup) -> None:
    dataset = setup.prepare()
    a, b = dataset.items
    assert setup.family.texts == ["", "caption a", "", "caption b"]
    assert setup.family.pictures == [dataset.picture(a)] * 2 + [dataset.picture(b)] * 2
    assert set(setup.family.pictures) == setup.firsts and len(setup.firsts) == 2
    means = [frames[0].float().mean().item() for frames in setup.family.encoded]
    assert [dataset.text("", dataset.picture(item))["embeds"].tolist() for item in (a, b)] == [[mean] for mean in means]
    with pytest.raises(KeyError):
        dataset.text("caption a", dataset.picture(b))
    with pytest.raises(KeyError):
        dataset.text("")


def test_what_is_encoded_again_is_what_changed(setup: Setup) -> None:
    """In turn: nothing, a caption edited, a clip copied, a clip replaced, the image processor."""
    before = setup.prepare().fingerprint
    assert setup.prepare().fingerprint == before and setup.work == (0, 0) and setup.encoders.loaded == []
    (setup.clips / "a.txt").write_text("changed", encoding="utf-8")
    assert setup.prepare().fingerprint != before and setup.family.texts == ["changed"] and setup.encoders.loaded == ["text"]
    for ending in ("mp4", "txt"):
        (setup.clips / f"c.{ending}").write_bytes((setup.clips / f"b.{ending}").read_bytes())
    dataset = setup.prepare()
    assert setup.work == (0, 0) and dataset.picture(dataset.items[1]) == dataset.picture(dataset.items[2])
    write_clip(setup.clips / "c.mp4", [scene(n + 90, 48, 64) for n in range(21)])
    setup.prepare()
    assert setup.work == (1, 2) and set(setup.family.pictures) == setup.firsts
    (setup.model / "image_processor").mkdir()
    (setup.model / "image_processor" / "preprocessor_config.json").write_text("{}", encoding="utf-8")
    setup.prepare()
    assert setup.work == (0, 6)


@pytest.mark.parametrize(
    ("settings", "pictures"),
    [
        ({"windows": WindowSettings(size=9, stride=4)}, 8),
        ({"temporal_augmentation": "reverse", "variants": 4, "buckets": [{"frames": 17, "height": 48, "width": 64}]}, 4),
        ({"frame_sample_strategy": "slide", "frame_stride": 2, "buckets": [{"frames": 9, "height": 32, "width": 32}]}, 14),
    ],
)
def test_every_window_and_variant_is_seen_with_its_own_first_frame(setup: Setup, settings: dict, pictures: int) -> None:
    setup.settings = settings
    dataset = setup.prepare()
    seen = {
        dataset.picture(replace(item, key=key), window)
        for item in dataset.items for key in (item.key, *item.variants) for window in range(item.windows)
    }  # fmt: skip
    assert seen == setup.firsts == set(setup.family.pictures) and len(seen) == pictures
    setup.prepare()
    assert setup.work == (0, 0)


def test_missing_texts_are_encoded_with_frames_read_again(setup: Setup) -> None:
    """As after pruning, or under another text encoder."""
    setup.settings = {"windows": WindowSettings(size=9, stride=4)}
    first = setup.prepare()
    pictures = set(setup.family.pictures)
    (setup.model / "text_encoder" / "model.safetensors").write_bytes(b"t2")
    again = setup.prepare()
    assert setup.work == (0, 16) and set(setup.family.pictures) == pictures
    item, picture = again.items[1], again.picture(again.items[1], 3)
    assert torch.equal(again.text("caption b", picture)["embeds"], first.text("caption b", picture)["embeds"])
    assert picture == first.picture(item, 3) and again.fingerprint != first.fingerprint


def test_a_prompt_is_seen_with_its_picture(setup: Setup) -> None:
    dataset = setup.prepare()
    frame = np.full((48, 64, 3), 9, np.uint8)
    picture = Picture(pixel_digest(frame).hex(), lambda: frame)
    dataset.add_text("a prompt", picture)
    dataset.add_text("not this")
    assert dataset.text("a prompt", picture.digest)["embeds"].tolist() == [9.0, *b"a prompt"]
    assert dataset.text("not this")["embeds"].tolist() == [0.0, *b"not this"]
    with pytest.raises(KeyError):
        dataset.text("a prompt")


def test_a_clip_damaged_before_its_text_is_encoded_is_named(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_prepare.FakeEncoders, "text_encoder", lambda _: (setup.clips / "a.mp4").write_bytes(b""))
    with pytest.raises(UserError, match=r"a\.mp4.*cannot be read any more"):
        setup.prepare()
