"""LTX-Video's tensors under ComfyUI's names give the same numbers in ComfyUI's own modules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from diffusers import AutoencoderKLLTXVideo, LTXVideoTransformer3DModel
from safetensors import safe_open
from safetensors.torch import load_file

from tests.models.core import core
from tests.tiny.ltx_video import VAES, write_tiny_ltx
from trainer.adapters.file import save_lora
from trainer.adapters.lora import Lora
from trainer.job import AdapterSettings
from trainer.models import open_model
from trainer.models.base import ModelFamily
from trainer.models.key_tensors import from_comfy, to_comfy
from trainer.models.ltx_video import keys
from trainer.models.ltx_video.vae_pieces import comfy_config, tensor_to_comfy

SIZES = {  # the released transformers, and the file's version of each released VAE in ComfyUI
    "2b": {"num_layers": 28, "num_attention_heads": 32, "attention_head_dim": 64, "cross_attention_dim": 2048},
    "13b": {"num_layers": 48, "num_attention_heads": 32, "attention_head_dim": 128, "cross_attention_dim": 4096},
}
RELEASED_VAES: dict[str, dict[str, Any]] = {
    "0.9": {},
    "0.9.1": {
        "decoder_block_out_channels": (256, 512, 1024), "decoder_layers_per_block": (5, 6, 7, 8), "upsample_factor": (2, 2, 2),
        "decoder_spatio_temporal_scaling": (True, True, True), "decoder_inject_noise": (True, True, True, False),
        "upsample_residual": (True, True, True), "timestep_conditioning": True,
    },
    "0.9.5": {
        **VAES["0.9.5"], "block_out_channels": (128, 256, 512, 1024, 2048), "layers_per_block": (4, 6, 6, 2, 2),
        "decoder_block_out_channels": (256, 512, 1024), "decoder_layers_per_block": (5, 5, 5, 5),
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def comfy() -> Iterator[ModuleType]:
    names = "ldm.lightricks.model", "ldm.lightricks.vae.causal_video_autoencoder", "model_detection", "model_patcher", "lora", "ops"
    with core(*names) as package:
        yield package


@pytest.fixture(params=["0.9", "0.9.5"])
def family(request: pytest.FixtureRequest, tmp_path: Path) -> ModelFamily:
    made = open_model(write_tiny_ltx(tmp_path / "tiny", request.param))
    made.write_comfy_files(tmp_path / "transformer.safetensors", tmp_path / "vae.safetensors")
    return made


def core_model(comfy: ModuleType, file: Path) -> Any:
    """Core's whole model of a file, found by its own detection, as its loader of diffusion models makes it."""
    with safe_open(file, "pt") as opened:
        metadata = opened.metadata()
    state = load_file(file)
    config = comfy.model_detection.model_config_from_unet(state, "", metadata=metadata)
    config.set_inference_dtype(torch.float32, None)
    model = config.get_model(state, "")
    model.load_model_weights(state, "")
    assert type(model).__name__ == "LTXV"
    return model


def inputs_of(family: ModelFamily) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """X, sigma, two texts of unlike length, and a first frame that one example of two begins with."""
    text = family.text_inputs([{"text": torch.randn(5, 16)}, {"text": torch.randn(9, 16)}])
    given = {"first_frame": torch.randn(2, 128, 1, 2, 3), "has_first_frame": torch.tensor([True, False])}
    return torch.randn(2, 128, 3, 2, 3), torch.tensor([0.3, 0.8]), text, given


def core_velocity(model: Any, x: torch.Tensor, sigma: torch.Tensor, text: dict[str, torch.Tensor], clean: torch.Tensor) -> torch.Tensor:
    mask = (1 - clean).expand(-1, -1, -1, *x.shape[-2:])
    timestep = model.process_timestep(sigma, x, denoise_mask=mask).squeeze(-1)
    embedded = text["encoder_hidden_states"].clone()
    return model.diffusion_model(x.clone(), timestep, embedded, text["encoder_attention_mask"].int(), frame_rate=25)


@pytest.mark.parametrize("size", SIZES)
def test_released_transformers_have_comfys_tensors(comfy: ModuleType, size: str) -> None:
    with torch.device("meta"):
        ours = LTXVideoTransformer3DModel(**SIZES[size]).state_dict()
        theirs = comfy.ldm.lightricks.model.LTXVModel(**SIZES[size], operations=comfy.ops.disable_weight_init).state_dict()
    made = to_comfy(keys.TRANSFORMER, ours)
    assert {name: tensor.shape for name, tensor in made.items()} == {name: tensor.shape for name, tensor in theirs.items()}
    back = dict(pair for name, tensor in made.items() for pair in from_comfy(keys.TRANSFORMER, name, tensor, lambda name: len(ours[name])))
    assert back.keys() == ours.keys()


@pytest.mark.parametrize("release", RELEASED_VAES)
def test_released_vaes_have_comfys_tensors(comfy: ModuleType, release: str) -> None:
    """Under the names and in the shapes of the VAE that core takes a file of the release for, and of the one that we describe."""
    core = comfy.ldm.lightricks.vae.causal_video_autoencoder.VideoVAE
    with torch.device("meta"):
        ours = AutoencoderKLLTXVideo(**RELEASED_VAES[release])
        known, described = core(version=list(RELEASED_VAES).index(release)), core(config=comfy_config(ours.config))
    made = {tensor_to_comfy(name, ours.config): tensor.shape for name, tensor in ours.state_dict().items()}
    for theirs in (known, described):
        assert {name: tensor.shape for name, tensor in theirs.state_dict().items()} == made


def test_transformer_equals_comfy(comfy: ModuleType, family: ModelFamily, tmp_path: Path) -> None:
    x, sigma, text, given = inputs_of(family)
    x = family.conditioned(x, given)
    mask = family.loss_mask(x, given)
    assert mask is not None
    with torch.no_grad():
        a = family.load_transformer(torch.float32)(**family.denoiser_inputs(x, sigma, text, given), return_dict=False)
        b = core_velocity(core_model(comfy, tmp_path / "transformer.safetensors"), x, sigma, text, 1 - mask)
    a = family.velocity(a, x, sigma)
    assert (a - b).norm() / a.norm() < 1e-4


@pytest.mark.parametrize("release", VAES)
def test_vae_equals_comfy(comfy: ModuleType, tmp_path: Path, release: str) -> None:
    family = open_model(write_tiny_ltx(tmp_path / "tiny", release))
    family.write_comfy_files(tmp_path / "transformer.safetensors", tmp_path / "vae.safetensors")
    with safe_open(tmp_path / "vae.safetensors", "pt") as opened:
        config = json.loads(opened.metadata()["config"])["vae"]
    theirs, ours = comfy.ldm.lightricks.vae.causal_video_autoencoder.VideoVAE(config=config), family.load_vae()
    theirs.load_state_dict(load_file(tmp_path / "vae.safetensors"))
    video, latents = torch.rand(1, 3, 17, 64, 96) * 2 - 1, torch.randn(1, 128, 3, 2, 3)
    with torch.no_grad():
        a, b = family.normalize(ours.encode(video).latent_dist.mode()), theirs.encode(video)
        assert (a - b).norm() / a.norm() < 1e-4
        mean, std = family._latent_statistics(latents)  # type: ignore[attr-defined]
        torch.manual_seed(0)
        a = ours.decode(latents * std + mean, torch.tensor([0.05]), return_dict=False)[0]
        torch.manual_seed(0)  # the decoder of 0.9.1 draws noise in its blocks
        b = theirs.decoder(theirs.per_channel_statistics.un_normalize(latents), timestep=torch.tensor([0.05]))
    assert (a - b).norm() / a.norm() < 1e-4


@pytest.mark.parametrize(("rank", "alpha"), [(16, 4.0), (16, 64.0)])
def test_lora_velocity_equals_diffusers(comfy: ModuleType, family: ModelFamily, tmp_path: Path, rank: int, alpha: float) -> None:
    """Core's own key map and patching of an exported file, against the adapter inside diffusers' model."""
    transformer, (x, sigma, text, _) = family.load_transformer(torch.float32), inputs_of(family)
    inputs = family.denoiser_inputs(x, sigma, text, {})
    with torch.no_grad():
        base = family.velocity(transformer(**inputs, return_dict=False), x, sigma)
    lora = Lora.attach(transformer, family.spec, AdapterSettings(rank=rank, alpha=alpha), seed=0)
    for parameter in lora.parameters():
        parameter.data.normal_(0, 0.1)
    save_lora(lora.weights(), family, tmp_path / "lora.safetensors", {})

    model, file = core_model(comfy, tmp_path / "transformer.safetensors"), load_file(tmp_path / "lora.safetensors")
    patches = comfy.lora.load_lora(file, comfy.lora.model_lora_keys_unet(model, {}), log_missing=True)
    assert len(patches) * 2 == len(file) and len(patches) == len(lora.layers)
    patcher = comfy.model_patcher.ModelPatcher(model, torch.device("cpu"), torch.device("cpu"))
    assert len(patcher.add_patches(patches)) == len(patches)
    patcher.patch_model()
    with torch.no_grad():
        a = family.velocity(transformer(**inputs, return_dict=False), x, sigma)
        b = core_velocity(model, x, sigma, text, torch.zeros(2, 1, 3, 1, 1))
    assert (a - base).norm() / base.norm() > 0.01
    assert (a - b).norm() / a.norm() < 1e-3
