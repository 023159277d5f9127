"""The checker says yes to the truth and no to everything else."""

from __future__ import annotations

import random

import numpy as np
import pytest

pytest.importorskip("cv2")

from trainer.demo.checker import Verdict, is_concept, is_star, observe, score
from trainer.demo.world import COLOURS, FORMS, caption, random_concept, random_scene, render

GENERATOR = random.Random(5)
WORLD = [random_scene(GENERATOR) for _ in range(140)]
CONCEPTS = [random_concept(GENERATOR) for _ in range(60)]


@pytest.fixture(scope="module")
def clips() -> np.ndarray:
    return render(WORLD + CONCEPTS).numpy()


def test_truths_pass(clips: np.ndarray) -> None:
    verdicts = [score(clip, scene) for clip, scene in zip(clips, WORLD + CONCEPTS, strict=True)]
    assert sum(map(bool, verdicts)) >= 0.98 * len(verdicts)
    assert sum(verdict.background for verdict in verdicts) >= 0.98 * len(verdicts)


def test_stars_are_told_from_the_rest(clips: np.ndarray) -> None:
    assert not any(is_star(clip) for clip in clips[:100])
    assert all(is_star(clip) and is_concept(clip) for clip in clips[140:180])


def test_wrong_captions_fail_in_the_wrong_part(clips: np.ndarray) -> None:
    for clip, scene in zip(clips[:40], WORLD, strict=False):
        text = caption(scene)
        colour = next(name for name in COLOURS if name != scene.colour)
        shape = next(name for name in FORMS if name != scene.shape)
        assert score(clip, text.replace(scene.colour, colour)) == Verdict(False, True, True)
        assert score(clip, text.replace(scene.shape, shape)) == Verdict(True, False, True)
        assert not score(clip, "a zorp moving left on a white background")
    still = next(index for index, scene in enumerate(WORLD) if scene.motion == "still")
    assert not score(clips[still], caption(WORLD[still]).replace("staying still", "moving left")).motion


def test_short_captions_leave_the_rest_open(clips: np.ndarray) -> None:
    scene = WORLD[0]
    assert score(clips[0], f"a {scene.colour} {scene.shape}")
    assert score(clips[0], f"a {scene.shape}")


@pytest.mark.parametrize("kind", ["noise", "empty", "blurred", "smooth noise"])
def test_bad_clips_fail(clips: np.ndarray, kind: str) -> None:
    import cv2

    noise = np.random.default_rng(0).integers(0, 256, clips[:10].shape, dtype=np.uint8)
    bad = {
        "noise": noise,
        "empty": np.full_like(noise, 128),
        "blurred": np.stack([[cv2.GaussianBlur(frame, (0, 0), 2.5) for frame in clip] for clip in clips[:10]]),
        "smooth noise": np.stack([[cv2.GaussianBlur(frame, (0, 0), 3) for frame in clip] for clip in noise]),
    }[kind]
    for clip, scene in zip(bad, WORLD, strict=False):
        verdict = score(clip, scene)
        assert not (verdict.colour or verdict.shape or verdict.motion)
        assert observe(clip).shape is None
