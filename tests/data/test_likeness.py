"""Duplicates: hashes of what a frame looks like."""

import numpy as np
import pytest

from trainer.data.likeness import alike_groups, difference_hash, exact_groups


def picture(seed: int, height: int = 90, width: int = 160) -> np.ndarray:
    import cv2

    coarse = np.random.default_rng(seed).integers(0, 255, (8, 9, 3), np.uint8)
    return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)


def test_scaled_brightened_and_noisy_copies_are_alike() -> None:
    import cv2

    one = picture(1)
    noisy = np.clip(one.astype(int) + np.random.default_rng(0).integers(-6, 7, one.shape), 0, 255).astype(np.uint8)
    darker = (one * 0.8).astype(np.uint8)
    small = cv2.resize(one, (80, 48), interpolation=cv2.INTER_AREA)
    hashes = [difference_hash(frame) for frame in (one, picture(2), noisy, darker, picture(3), small)]
    assert alike_groups(hashes) == [[0, 2, 3, 5]]


@pytest.mark.parametrize("level", [0, 128, 255])
def test_blank_frames_are_alike_to_none(level: int) -> None:
    blank = np.full((48, 64, 3), level, np.uint8)
    assert not difference_hash(blank).any() and alike_groups([difference_hash(blank)] * 3) == []


def test_many_different_frames_make_no_groups() -> None:
    rng = np.random.default_rng(0)
    hashes = [rng.integers(0, 256, 8, np.uint8) for _ in range(700)]
    assert alike_groups(hashes) == []
    assert alike_groups([*hashes, hashes[3], hashes[650]]) == [[3, 700], [650, 701]]


def test_equal_digests() -> None:
    assert exact_groups(["a", "b", "a", "c", "b", "a"]) == [[0, 2, 5], [1, 4]]
