"""Scaling to cover a size and cropping what is over, without distortion."""

from __future__ import annotations

import numpy as np

CENTRE = (0.5, 0.5)  # a place to crop at: shares of what is cut off that lie above and to the left


def covering(display: tuple[int, int], height: int, width: int) -> tuple[int, int]:
    """Height and width at which a picture shown at `display` (height, width) just covers height × width."""
    scale = max(height / display[0], width / display[1])
    return max(height, round(display[0] * scale)), max(width, round(display[1] * scale))


def shrinks(source: tuple[int, int], height: int, width: int) -> bool:
    """Whether scaling from `source` (height, width) loses samples in either direction, so that it must average."""
    return height < source[0] or width < source[1]


def resized(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """A picture at another size, antialiased: [h, w, 3] uint8 or float32 -> [height, width, 3]."""
    import cv2

    source = pixels.shape[0], pixels.shape[1]
    if source == (height, width):
        return pixels
    return cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA if shrinks(source, height, width) else cv2.INTER_CUBIC)


def offset(display: tuple[int, int], height: int, width: int, place: tuple[float, float]) -> tuple[int, int]:
    """Rows above and columns left of height × width, cropped at `place` out of a picture shown at `display` that covers it."""
    return _cut_off(covering(display, height, width), height, width, place)


def cropped(pixels: np.ndarray, height: int, width: int, place: tuple[float, float] = CENTRE) -> np.ndarray:
    """The height × width at `place` of a picture that covers it, as an array of its own."""
    top, left = _cut_off((pixels.shape[0], pixels.shape[1]), height, width, place)
    return np.ascontiguousarray(pixels[top : top + height, left : left + width])


def _cut_off(covered: tuple[int, int], height: int, width: int, place: tuple[float, float]) -> tuple[int, int]:
    """Rows above and columns left of height × width at `place` in a picture of the size `covered`."""
    return int((covered[0] - height) * place[0]), int((covered[1] - width) * place[1])


def fit(pixels: np.ndarray, display: tuple[int, int], height: int, width: int, place: tuple[float, float] = CENTRE) -> np.ndarray:
    """A picture scaled to cover height × width and cropped at `place`: [h, w, 3] -> [height, width, 3].

    `display` is the height and width the picture is shown at, which differs from its own where pixels are not square.
    """
    return cropped(resized(pixels, *covering(display, height, width)), height, width, place)
