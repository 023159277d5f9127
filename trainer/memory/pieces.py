"""Large tensors are converted a piece at a time, as their numbers are float32 on their way; compiled code makes none of those."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

PIECE = 1 << 24  # numbers that are converted at once
_whole: ContextVar[bool] = ContextVar("whole tensors are converted", default=False)


def at_once(numbers: int) -> bool:
    """Whether so many numbers are converted in one piece."""
    return torch.compiler.is_compiling() or numbers <= PIECE or _whole.get()


def rows_at_once(columns: int) -> int:
    """How many rows of so many numbers are a piece, at least one."""
    return max(PIECE // columns, 1)


@contextmanager
def as_compiled() -> Iterator[None]:
    """Inside the block tensors are converted whole, as compiled code does."""
    before = _whole.set(True)
    try:
        yield
    finally:
        _whole.reset(before)
