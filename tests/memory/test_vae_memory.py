"""What the VAE takes, whole and in tiles, against rehearsals of all of its work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.memory.measured import family_of
from tests.tiny.wan import write_tiny_wan
from trainer.job import MemorySettings
from trainer.memory.twin import fill, twin_of
from trainer.memory.vae_memory import VaeMemory, can_tile, peak_of, unmet_savings, vae_peaks
from trainer.models import open_model

SIZES = {"Wan 2.1 1.3B": (1, 384, 384), "LTX-Video 2B": (9, 512, 704), "HunyuanVideo": (5, 320, 448)}


@pytest.mark.parametrize(("name", "size"), SIZES.items(), ids=str)
def test_a_tile_stands_for_all_of_them(name: str, size: tuple[int, int, int]) -> None:
    family = family_of(name)
    twin = twin_of(family)
    vae: Any = twin.load_vae()
    assert can_tile(vae)
    vae.enable_tiling()
    with FakeTensorMode(allow_non_fake_inputs=True):
        fill(vae)
        latents = torch.empty(1, *family.spec.latent_shape(*size))
        peak = peak_of(vae, lambda: twin.decode_video(vae, latents))
    tiled, whole = vae_peaks(family, size, tiled=True), vae_peaks(family, size)
    assert peak is not None and tiled.decode is not None and whole.decode is not None and tiled.encode is not None and whole.encode
    assert 0.94 * peak <= tiled.decode <= 1.15 * peak < whole.decode
    assert tiled.encode < whole.encode


def test_frames_no_larger_than_a_tile_are_whole() -> None:
    family = family_of("Wan 2.1 1.3B")
    assert vae_peaks(family, (1, 256, 256), tiled=True) == vae_peaks(family, (1, 256, 256))


@pytest.mark.parametrize("text", ['{"dim_mult": "none"}', '{"z_dim": -1}', "{no json"])
def test_a_saving_of_a_vae_that_cannot_be_made_is_told_with_the_reason(tmp_path: Path, text: str) -> None:
    """All that went wrong was taken for a VAE that has the saving."""
    family = open_model(write_tiny_wan(tmp_path / "wan"))
    assert unmet_savings(family, MemorySettings(vae_tiling=True)) == []
    file = tmp_path / "wan/vae/config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **json.loads(text)}) if text.endswith("}") else text)
    (problem,) = unmet_savings(family, MemorySettings(vae_tiling=True))
    assert "vae" in problem.where and problem.cure
    assert unmet_savings(family, MemorySettings()) == [] and vae_peaks(family, (9, 64, 64)) == VaeMemory()


def test_faults_of_our_own_are_not_taken_for_a_missing_vae(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family = open_model(write_tiny_wan(tmp_path / "wan"))
    monkeypatch.setattr(type(family), "load_vae", lambda self: self.no_such_attribute)
    with pytest.raises(AttributeError):
        unmet_savings(family, MemorySettings(vae_tiling=True))
    with pytest.raises(AttributeError):
        vae_peaks(family, (9, 64, 64))
