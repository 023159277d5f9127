"""How much of a card torch may allocate."""

from __future__ import annotations

import pytest
import torch

from trainer.memory.card import CARDS, CONTEXT, GB, free_memory
from trainer.memory.choosing import FRAGMENTS, taken
from trainer.memory.limit import share


@pytest.mark.parametrize(
    ("fit_into", "free", "windows", "allowed"),
    [
        (0, 20, False, 24),
        (8, 20, False, 8 - CONTEXT),
        (48, 20, False, 24),
        (0, 20, True, 19.5),
        (8, 20, True, 8 - CONTEXT),
        (23, 20, True, 19.5),
        (0, 0, True, 0),
        (0.5, 20, False, 0),
    ],
)
def test_share(fit_into: float, free: float, windows: bool, allowed: float) -> None:
    assert share(fit_into, free * GB, 24 * GB, windows) == pytest.approx(allowed / 24)


def test_the_cap_and_the_limit_of_a_plan_are_the_same_bytes() -> None:
    cap = share(8, 20 * GB, 24 * GB, windows=False) * 24 * GB
    assert taken(cap / FRAGMENTS) == pytest.approx(8 * 2**30)


def test_cards_are_counted_as_they_are_sold(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, whole = 24_564 << 20, CARDS["RTX 4090"].memory  # bytes, as nvidia-smi shows them
    assert 0.98 < driver / GB / whole <= 1
    for name, value in {"mem_get_info": (driver, driver), "memory_reserved": 0, "memory_allocated": 0}.items():
        monkeypatch.setattr(torch.cuda, name, lambda _, value=value: value)
    assert free_memory(torch.device("cuda")) == pytest.approx(driver / 2**30)
