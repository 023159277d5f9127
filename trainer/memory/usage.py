"""What a run takes of the card and of the host: before training, in it, in sampling, and after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..events import MemoryUse

if TYPE_CHECKING:
    from ..compute import Compute
    from ..events import EventLog


class Usage:
    """Measures peaks apart, and keeps the highest of each part of the run."""

    def __init__(self, compute: Compute) -> None:
        self._compute = compute
        self._peaks: dict[str, float] = {}

    @contextmanager
    def during(self, part: str) -> Iterator[None]:
        """Measures what the block takes, as `part`."""
        self._compute.reset_peak()
        try:
            yield
        finally:
            self._peaks[part] = max(self._peaks.get(part, 0.0), self._compute.peak_gib())

    def peak(self, part: str) -> float:
        """The most that a part of the run took, GiB."""
        return self._peaks.get(part, 0.0)

    def tell(self, log: EventLog) -> None:
        """Emits what was measured."""
        for part, peak in self._peaks.items():
            log.emit(MemoryUse(part, peak, self._compute.host_gib()))
