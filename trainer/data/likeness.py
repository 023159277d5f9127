"""Clips that are the same or look alike: three frames made tiny, and the groups that they find."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

_SIDE = 8  # cells of a tiny frame, across and down
_SAME = 0.96  # correlation from which two clips may be alike
_CELL = 40.0  # levels that no cell of theirs may be further apart, at the greater contrast of both
_BLANK = 2.0  # levels of contrast within its frames below which a clip shows nothing that could be compared
_ROWS = 128  # clips compared with all others at a time


def thumbnails(frames: np.ndarray) -> np.ndarray:
    """The first, middle and last frame, each in 8 × 8 cells of their mean colour: [F, H, W, 3] uint8 -> [3, 8, 8, 3] uint8."""
    import cv2

    places = (0, len(frames) // 2, len(frames) - 1)
    return np.stack([cv2.resize(frames[place], (_SIDE, _SIDE), interpolation=cv2.INTER_AREA) for place in places])


def exact_groups(digests: Sequence[str]) -> list[list[int]]:
    """Places of equal digests, each group of at least two."""
    places = defaultdict[str, list[int]](list)
    for place, digest in enumerate(digests):
        places[digest].append(place)
    return [group for group in places.values() if len(group) > 1]


def alike_groups(looks: Sequence[np.ndarray]) -> list[list[int]]:
    """Places of thumbnails that are alike: each group is a clip with all later ones that it is like itself, not by way of others.

    Scaling, recompression, another frame rate, and more or less brightness or contrast leave clips alike. Another colour,
    place or motion of what is seen does not. Clips of flat frames are alike to none. A clip may be in several groups.
    """
    if not looks:
        return []
    cells = np.stack(looks).astype(np.float32)
    known = np.flatnonzero((cells - cells.mean((2, 3), keepdims=True)).std((1, 2, 3, 4)) >= _BLANK)
    cells = cells.reshape(len(looks), -1)[known]
    cells -= cells.mean(1, keepdims=True)
    contrast = cells.std(1)
    cells /= contrast[:, None]
    groups, inside = list[list[int]](), defaultdict[int, list[set[int]]](list)
    for start in range(0, len(known), _ROWS):
        close = cells[start : start + _ROWS] @ cells[start:].T >= _SAME * cells.shape[1]
        for row in range(len(close)):
            place, others = start + row, start + row + 1 + np.flatnonzero(close[row, row + 1 :])
            if _together(place, others, inside):
                continue
            apart = np.abs(cells[others] - cells[place]).max(1) * np.maximum(contrast[others], contrast[place])
            others = others[apart <= _CELL]
            if not _together(place, others, inside):
                members = {place, *others.tolist()}
                groups.append(known[sorted(members)].tolist())
                for member in members:
                    inside[member].append(members)
    return groups


def _together(place: int, others: np.ndarray, inside: dict[int, list[set[int]]]) -> bool:
    """Whether the others are none, or all in one group with that place already."""
    return not len(others) or any(group.issuperset(others.tolist()) for group in inside[place])
