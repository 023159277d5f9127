"""How much of a card torch may allocate."""

from __future__ import annotations

import pytest

from trainer.memory.limit import GIB, share


@pytest.mark.parametrize(
    ("fit_into", "free", "windows", "allowed"),
    [
        (0, 20, False, 24),
        (8, 20, False, 8),
        (48, 20, False, 24),
        (0, 20, True, 19.5),
        (8, 20, True, 8),
        (23, 20, True, 19.5),
        (0, 0, True, 0),
    ],
)
def test_share(fit_into: float, free: float, windows: bool, allowed: float) -> None:
    assert share(fit_into, free * GIB, 24 * GIB, windows) == pytest.approx(allowed / 24)
