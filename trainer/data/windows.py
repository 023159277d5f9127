"""FramePack sliding windows: a clip of N frames gives N - W + 1 windows of W frames at stride 1."""

from __future__ import annotations

from .. import draws


def window_starts(frames: int, size: int, stride: int) -> tuple[int, ...]:
    """First frames of the windows of `size` frames that fit into `frames`; empty if none fits."""
    return tuple(range(0, frames - size + 1, stride))


def chosen_windows(count: int, per_clip: int, seed: int, epoch: int, position: int) -> list[int]:
    """The windows seen at one visit of a clip: all, or `per_clip` distinct ones drawn by key, ascending."""
    if not per_clip or per_clip >= count:
        return list(range(count))
    return sorted(draws.permutation(count, seed, "windows", epoch, position)[:per_clip])
