"""Captions from a CLIP, with one that only remembers what it was asked; needs no ComfyUI."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch


@pytest.fixture(scope="module")
def captions(pack: ModuleType) -> ModuleType:
    return import_module(f"{pack.__name__}.nodes.text_generation")


class FakeClip:
    """Puts as many pictures among its tokens as `takes` allows, as core's vision-language models do."""

    def __init__(self, takes: int, answer: str = "a fox") -> None:
        self.takes, self.answer = takes, answer
        self.text, self.image, self.options = "", torch.empty(0), dict[str, Any]()

    def tokenize(self, text: str, **options: Any) -> dict[str, Any]:
        self.text, self.image = text, options["image"]
        shown = [{"type": "image", "data": self.image[index : index + 1]} for index in range(min(self.takes, len(self.image)))]
        return {"fake": [[(7, 1.0), *((picture, 1.0) for picture in shown), (8, 1.0)]]}

    def generate(self, tokens: dict[str, Any], **options: Any) -> list[int]:
        self.options = options
        return [len(tokens["fake"][0])]

    def decode(self, ids: list[int]) -> str:
        return self.answer


def frames(count: int) -> np.ndarray:
    return np.stack([np.full((4, 6, 3), 51 * index, np.uint8) for index in range(count)])


def test_all_frames_are_shown_in_order(captions: ModuleType) -> None:
    clip = FakeClip(takes=9)
    assert captions.ClipCaptioner(clip, " Describe it. ", 99, 5)(frames(3)) == "a fox"
    assert clip.image.shape == (3, 4, 6, 3) and [round(float(one.mean()), 3) for one in clip.image] == [0, 0.2, 0.4]
    assert clip.text == "These 3 pictures are frames of one video clip, in the order of time. Describe it."
    assert (clip.options["max_length"], clip.options["seed"]) == (99, 5)


def test_one_frame_is_just_a_picture(captions: ModuleType) -> None:
    clip = FakeClip(takes=9)
    captions.ClipCaptioner(clip, "Describe it.", 99, 5)(frames(1))
    assert clip.text == "Describe it." and clip.image.shape == (1, 4, 6, 3)


def test_a_model_that_takes_one_picture_sees_a_sheet(captions: ModuleType) -> None:
    clip = FakeClip(takes=1)
    captions.ClipCaptioner(clip, "Describe it.", 99, 0)(frames(5))
    assert clip.image.shape == (1, 8, 18, 3) and clip.text.startswith("This picture shows 5 frames")
    shades = clip.image[0, ::4, ::6, 0]
    assert torch.allclose(shades, torch.tensor([[0, 0.2, 0.4], [0.6, 0.8, 0]]))


def test_a_blind_model_is_refused(captions: ModuleType) -> None:
    with pytest.raises(ValueError, match="does not look at pictures"):
        captions.ClipCaptioner(FakeClip(takes=0), "Describe it.", 99, 0)(frames(2))


@pytest.mark.parametrize("answer", ["<think>\nhm\n</think>\n a fox ", "hm</think>a fox", "a fox<think> or a"])
def test_thoughts_are_no_caption(captions: ModuleType, answer: str) -> None:
    assert captions.ClipCaptioner(FakeClip(9, answer), "Describe it.", 99, 0)(frames(1)) == "a fox"
