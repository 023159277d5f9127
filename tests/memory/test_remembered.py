"""What was rehearsed once in a process is not rehearsed again for a model that is configured alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny.wan import write_tiny_wan
from trainer.memory import remembered as module
from trainer.memory.remembered import model_key, remembered
from trainer.memory.vae_memory import vae_peaks
from trainer.models import open_model


def test_a_model_that_is_opened_again_is_not_rehearsed_again(tmp_path: Path) -> None:
    first, second = (open_model(write_tiny_wan(tmp_path / name)) for name in ("a", "b"))
    assert vae_peaks(first, (5, 32, 32)) is vae_peaks(second, (5, 32, 32))
    assert vae_peaks(first, (5, 32, 48)) != vae_peaks(first, (5, 32, 32))


def test_models_that_are_configured_otherwise_have_other_keys(tmp_path: Path) -> None:
    family = open_model(write_tiny_wan(tmp_path / "wan"))
    config = family.files.config("vae")
    assert model_key(family, {**config, "num_res_blocks": 3}) != model_key(family, config) == model_key(family, dict(config))


def test_the_oldest_of_too_many_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    monkeypatch.setattr(module, "_known", {})
    made: list[str] = []
    for key in ("a", "b", "b", "c", "b", "a"):
        assert remembered((key,), lambda key=key: made.append(key) or key) == key
    assert made == ["a", "b", "c", "a"]
