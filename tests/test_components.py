"""Loaded components: the VAE's memory savings."""

import pytest
import torch

from tests.tiny.wan import write_tiny_wan
from trainer.components import Components
from trainer.compute import Compute
from trainer.errors import UserError
from trainer.events import EventLog, Silent
from trainer.job import ComputeSettings, MemorySettings
from trainer.models import open_model
from trainer.models.base import ModelFamily


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> ModelFamily:
    return open_model(write_tiny_wan(tmp_path_factory.mktemp("tiny")))


def components(family: ModelFamily, **memory: bool) -> Components:
    return Components(family, Compute(ComputeSettings(device="cpu")), EventLog(Silent()), MemorySettings(**memory))


def test_vae_savings_are_off_unless_asked_for(family: ModelFamily) -> None:
    plain, sparing = components(family), components(family, vae_tiling=True, vae_slicing=True)
    assert (plain.vae().use_tiling, plain.vae().use_slicing, plain.tiled) == (False, False, False)
    assert (sparing.vae().use_tiling, sparing.vae().use_slicing, sparing.tiled) == (True, True, True)


def test_slicing_changes_no_latent_and_tiling_does(family: ModelFamily) -> None:
    frames = torch.randint(0, 256, (1, 288, 272, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    whole, sliced, tiled = (
        family.encode_video(components(family, **memory).vae(), frames)["latents"]
        for memory in ({}, {"vae_slicing": True}, {"vae_tiling": True})
    )
    assert torch.equal(whole, sliced)
    assert whole.shape == tiled.shape and not torch.equal(whole, tiled)


def test_a_vae_without_them_is_an_error(family: ModelFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(family), "load_vae", lambda self: torch.nn.Identity())
    with pytest.raises(UserError, match=r"memory\.vae_tiling: this model's VAE has no tiling"):
        components(family, vae_tiling=True).vae()
