"""Clips that look alike: a difference hash of one frame, and the groups it finds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

_SAME = 4  # differing bits of 64 up to which two frames count as alike
_ROWS = 128  # hashes compared with all others at a time


def difference_hash(frame: np.ndarray) -> np.ndarray:
    """Whether brightness rises from left to right between the cells of an 8 × 9 grid: [h, w, 3] uint8 -> 8 bytes.

    All zeros for a frame without any such rise, such as a black one, which says nothing about the clip. Scaling,
    recompression and small changes of brightness move few bits. (Krawetz 2013, "Kind of like that".)
    """
    import cv2

    grey = cv2.resize(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), (9, 8), interpolation=cv2.INTER_AREA).astype(np.int16)
    return np.packbits(grey[:, 1:] > grey[:, :-1])


def exact_groups(digests: Sequence[str]) -> list[list[int]]:
    """Places of equal digests, each group of at least two."""
    places = defaultdict[str, list[int]](list)
    for place, digest in enumerate(digests):
        places[digest].append(place)
    return [group for group in places.values() if len(group) > 1]


def alike_groups(hashes: Sequence[np.ndarray]) -> list[list[int]]:
    """Places whose hashes differ in few bits, directly or by way of others; hashes of zeros are alike to none."""
    values = np.array([int.from_bytes(value.tobytes(), "little") for value in hashes], np.uint64)
    root = list(range(len(values)))

    def find(place: int) -> int:
        while root[place] != place:
            root[place] = root[root[place]]
            place = root[place]
        return place

    known = np.flatnonzero(values)
    for start in range(0, len(known), _ROWS):
        rows = known[start : start + _ROWS]
        later = known[start:]
        away = _ones(values[rows, None] ^ values[None, later])
        for row, column in zip(*np.nonzero(away <= _SAME), strict=True):
            root[find(int(later[column]))] = find(int(rows[row]))
    groups = defaultdict[int, list[int]](list)
    for place in known.tolist():
        groups[find(place)].append(place)
    return [group for group in groups.values() if len(group) > 1]


def _ones(values: np.ndarray) -> np.ndarray:
    """Bits that are set in each uint64."""
    table = np.unpackbits(np.arange(1 << 16, dtype=np.uint16).view(np.uint8).reshape(-1, 2), axis=1).sum(1, dtype=np.uint8)
    return table[values[..., None].view(np.uint16)].sum(-1, dtype=np.uint8)
