"""Duplicates: equal files, and clips that look alike."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.data.footage import ffmpeg
from trainer.data.decode import decode_frames
from trainer.data.likeness import alike_groups, exact_groups, thumbnails
from trainer.data.probe import probe
from trainer.data.timeline import timeline
from trainer.demo.clips import concept_scenes
from trainer.demo.world import COLOURS, MOTIONS, Scene, random_concept, render
from trainer.video import write_mp4

COPIES = {
    "recompressed": ["-crf", "38"],
    "smaller": ["-vf", "scale=iw/2:ih/2"],
    "larger": ["-vf", "scale=iw*2:ih*2"],
    "darker": ["-vf", "eq=brightness=-0.12"],
    "brighter": ["-vf", "eq=brightness=0.12:gamma=1.2"],
    "less contrast": ["-vf", "eq=contrast=0.8"],
    "retimed to 24": ["-r", "24"],
    "retimed to 30": ["-r", "30"],
}


def picture(seed: int, height: int = 90, width: int = 160) -> np.ndarray:
    import cv2

    coarse = np.random.default_rng(seed).integers(0, 255, (8, 9, 3), np.uint8)
    return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)


def pan(seed: int, frames: int = 17) -> np.ndarray:
    """A picture that wanders past, [F, 96, 128, 3]."""
    wide = picture(seed, 96, 256)
    return np.stack([wide[:, 4 * frame : 4 * frame + 128] for frame in range(frames)])


def drawn(scenes: Sequence[Scene]) -> list[np.ndarray]:
    return [thumbnails(frames) for frames in render(list(scenes)).numpy()]


def seen(path: Path) -> np.ndarray:
    """The thumbnails of a file, retimed as for training."""
    clip = probe(path)
    indices = timeline(clip, 16.0, 0.0).source[:17]
    return thumbnails(np.stack(list(decode_frames(path, clip, indices, clip.height, clip.width, lambda: None))))


@pytest.mark.parametrize("source", ["a zorp", "a pan"])
def test_copies_are_found(tmp_path: Path, source: str) -> None:
    import torch

    frames = pan(1) if source == "a pan" else render([concept_scenes()[0]])[0].numpy()
    write_mp4(torch.from_numpy(frames), tmp_path / "one.mp4", 16, crf=8)
    looks = [seen(tmp_path / "one.mp4")]
    for name, options in COPIES.items():
        ffmpeg("-i", tmp_path / "one.mp4", *options, tmp_path / f"{name}.mp4")
        looks.append(seen(tmp_path / f"{name}.mp4"))
    others = [thumbnails(pan(2)), thumbnails(pan(1)[::-1])]
    assert alike_groups([*looks, *others])[0] == list(range(len(looks)))
    assert not {len(looks), len(looks) + 1} & {place for group in alike_groups([*looks, *others]) for place in group}


def test_clips_of_the_demo_are_not_alike() -> None:
    assert alike_groups(drawn(concept_scenes())) == []


def test_one_scene_on_flat_ground_in_other_colours_is_not_alike() -> None:
    scene = random_concept(Random(3), "right", "black")
    assert alike_groups(drawn([replace(scene, colour=colour) for colour in COLOURS])) == []


def test_one_scene_on_flat_ground_with_other_motion_is_not_alike() -> None:
    assert alike_groups(drawn([random_concept(Random(3), motion, "white") for motion in MOTIONS])) == []


def test_groups_are_of_direct_matches_only() -> None:
    rng = np.random.default_rng(0)
    one, other = (rng.uniform(60, 190, (3, 8, 8, 3)) for _ in range(2))
    steps = [(one * (1 - share) + other * share).astype(np.uint8) for share in (0.0, 0.17, 0.34)]
    assert alike_groups(steps[::2]) == []
    assert alike_groups(steps) == [[0, 1], [1, 2]]


def test_many_different_clips_make_no_groups_and_copies_one_each() -> None:
    rng = np.random.default_rng(0)
    looks = [rng.integers(0, 256, (3, 8, 8, 3), np.uint8) for _ in range(300)]
    assert alike_groups(looks) == [] and alike_groups([]) == []
    assert alike_groups([*looks, looks[3], looks[250], looks[3]]) == [[3, 300, 302], [250, 301]]


@pytest.mark.parametrize("levels", [(0, 0, 0), (255, 255, 255), (20, 90, 200)])
def test_clips_of_flat_frames_are_alike_to_none(levels: tuple[int, ...]) -> None:
    blank = np.stack([np.full((48, 64, 3), level, np.uint8) for level in levels])
    assert alike_groups([thumbnails(blank)] * 3) == []


def test_equal_digests() -> None:
    assert exact_groups(["a", "b", "a", "c", "b", "a"]) == [[0, 2, 5], [1, 4]]
