"""What text an example is trained with."""

from __future__ import annotations

from .. import draws


def with_prefix(prefix: str, caption: str) -> str:
    """The caption with the trigger before it, one space between; either alone if the other is empty."""
    return " ".join(part for part in (prefix.strip(), caption) if part)


def is_dropped(rate: float, seed: int, epoch: int, position: int, window: int) -> bool:
    """Whether this visit of an example is trained with the empty caption; drawn by key at step time."""
    return rate > 0 and draws.uniform(seed, "caption dropout", epoch, position, window) < rate
