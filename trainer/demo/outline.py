"""Finds the one figure on a plain frame and measures it: outline, form, colours, angle, sharpness."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .world import BACKGROUNDS, COLOURS

if TYPE_CHECKING:
    import numpy as np

ZOOM = 4  # outlines are traced on enlarged frames
CONTRAST = 60.0  # RGB distance from the background that is surely foreground
PLAIN = 14.0  # largest spread of the background, in RGB steps
FIT = 0.8  # part of the best enclosing circle, box or triangle that the figure must fill
CORE_SHARE = 0.08  # part of the figure that a second colour must cover to be a core


@dataclass(frozen=True)
class Figure:
    """One figure on one frame; lengths in pixels."""

    centre: tuple[float, float]
    area: float
    shape: str | None
    colour: str | None
    core: str | None
    background: str | None
    angles: dict[int, float]  # by number of tips, in radians
    sharpness: float


def find_figure(frame: np.ndarray) -> Figure | None:
    """Measure the figure on a frame [H, W, 3] uint8; None if the frame is not one figure on a plain ground."""
    import cv2
    import numpy as np

    border = np.concatenate([frame[:2].reshape(-1, 3), frame[-2:].reshape(-1, 3), frame[:, :2].reshape(-1, 3),
                             frame[:, -2:].reshape(-1, 3)]).astype(np.float32)  # fmt: skip
    ground = np.median(border, axis=0)
    distance = np.linalg.norm(frame.astype(np.float32) - ground, axis=-1)  # [H, W]
    peak = float(np.percentile(distance, 98.5))
    if peak < CONTRAST or float(np.percentile(distance, 40)) > PLAIN:
        return None
    large = cv2.resize(distance, None, fx=ZOOM, fy=ZOOM, interpolation=cv2.INTER_CUBIC)
    mask = (large > 0.5 * min(peak, 2 * CONTRAST)).astype(np.uint8)
    contours, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    if not contours:
        return None
    contour = max(contours, key=cv2.contourArea)
    area = cv2.contourArea(contour)
    if area < 50 * ZOOM**2 or area < 0.85 * mask.sum():
        return None
    filled = cv2.drawContours(np.zeros_like(mask), [contour], -1, 1, cv2.FILLED)
    moments = cv2.moments(filled, binaryImage=True)
    centre = (moments["m10"] / moments["m00"], moments["m01"] / moments["m00"])
    small = cv2.resize(filled, distance.shape[::-1], interpolation=cv2.INTER_AREA)
    colour, core = _colours(frame, small)
    return Figure(
        centre=(centre[0] / ZOOM, centre[1] / ZOOM),
        area=area / ZOOM**2,
        shape=_shape(contour, area),
        colour=colour,
        core=core,
        background=_background(ground),
        angles={tips: _angle(filled, centre, tips) for tips in (3, 4, 5)},
        sharpness=_sharpness(frame, filled, ground),
    )


def _shape(contour: np.ndarray, area: float) -> str | None:
    """Star by its hollows, the others by what encloses them most tightly."""
    import cv2

    solidity = area / max(cv2.contourArea(cv2.convexHull(contour)), 1.0)
    if solidity < 0.8:
        return "star" if solidity > 0.45 and _hollows(contour) == 5 else None
    _, radius = cv2.minEnclosingCircle(contour)
    width, height = cv2.minAreaRect(contour)[1]
    triangle, _ = cv2.minEnclosingTriangle(contour)
    filled = {
        "circle": area / (math.pi * radius**2),
        "square": area / max(width * height, 1.0),
        "triangle": area / max(triangle, 1.0),
    }
    best = max(filled, key=lambda name: filled[name])
    if best == "square" and min(width, height) < 0.75 * max(width, height):
        return None
    return best if filled[best] > FIT and solidity > 0.9 else None


def _hollows(contour: np.ndarray) -> int:
    """Number of deep hollows between tips."""
    import cv2

    outline = cv2.approxPolyDP(contour, 0.012 * cv2.arcLength(contour, True), True)
    defects = cv2.convexityDefects(outline, cv2.convexHull(outline, returnPoints=False))
    size = math.sqrt(cv2.contourArea(cv2.convexHull(contour)))
    return 0 if defects is None else int((defects.reshape(-1, 4)[:, 3] / 256 > 0.1 * size).sum())


def _angle(mask: np.ndarray, centre: tuple[float, float], tips: int) -> float:
    """Direction of one of the tips, from the mask's moment of order `tips`."""
    import numpy as np

    rows, columns = np.nonzero(mask)
    points = (columns - centre[0]) + 1j * (rows - centre[1])
    return float(np.angle((points**tips).sum())) / tips


def _colours(frame: np.ndarray, coverage: np.ndarray) -> tuple[str | None, str | None]:
    """The figure's main colour, and the colour of a compact second region if there is one."""
    import numpy as np

    inside = coverage > 0
    pixels = frame[inside].astype(np.float32)
    names = list(COLOURS)
    hues = np.array([_hue(np.array(COLOURS[name], np.float32)[None])[0][0] for name in names])
    hue, saturation = _hue(pixels)
    gap = np.abs((hue[:, None] - hues + 180) % 360 - 180)  # [N, colours], degrees
    nearest = np.where((gap.min(1) < 25) & (saturation > 0.35), gap.argmin(1), -1)
    share = np.array([(nearest == index).mean() for index in range(len(names))])
    first, second = np.argsort(-share)[:2]
    core = names[second] if share[second] > CORE_SHARE else None
    if share[first] + (share[second] if core else 0.0) < 0.6:
        return None, None
    return names[first], core


def _hue(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hue in degrees and saturation in 0..1 of RGB pixels [N, 3]."""
    import cv2

    hsv = cv2.cvtColor((pixels / 255)[None], cv2.COLOR_RGB2HSV)[0]
    return hsv[:, 0], hsv[:, 1]


def _background(ground: np.ndarray) -> str | None:
    """Name of the nearest background colour."""
    import numpy as np

    gaps = {name: float(np.linalg.norm(ground - np.array(colour))) for name, colour in BACKGROUNDS.items()}
    best = min(gaps, key=lambda name: gaps[name])
    return best if gaps[best] < 60 else None


def _sharpness(frame: np.ndarray, filled: np.ndarray, ground: np.ndarray) -> float:
    """Median over the outline of the steepest step within two pixels, per pixel and by the contrast there."""
    import cv2
    import numpy as np

    image = frame.astype(np.float32) - ground.astype(np.float32)
    steps = np.sqrt(sum((cv2.filter2D(image, -1, k) ** 2).sum(-1) for k in _differences()))  # [H, W]
    coverage = cv2.resize(filled.astype(np.float32), image.shape[1::-1], interpolation=cv2.INTER_AREA)
    ring = cv2.morphologyEx((coverage > 0.5).astype(np.uint8), cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)) > 0
    near = cv2.dilate(steps, np.ones((3, 3), np.uint8))
    contrast = cv2.dilate(np.linalg.norm(image, axis=-1), np.ones((5, 5), np.uint8))
    return float(np.median(near[ring] / np.maximum(contrast[ring], 1.0))) if ring.any() else 0.0


def _differences() -> list[np.ndarray]:
    """Central differences along x and y, smoothed across, per pixel."""
    import numpy as np

    across = np.array([1, 2, 1], np.float32) / 4
    along = np.array([-0.5, 0, 0.5], np.float32)
    return [np.outer(across, along), np.outer(along, across)]
