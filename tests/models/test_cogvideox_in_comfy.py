"""CogVideoX's tensors and LoRA under ComfyUI's names give the same numbers in ComfyUI's own modules."""

from typing import Any

import pytest
import torch
from diffusers import AutoencoderKLCogVideoX
from safetensors.torch import load_file

from tests.models.core import core
from tests.tiny.cogvideox import SIDE, TOKENS, TRANSFORMER, VARIANTS, tiny_transformer, write_tiny_cogvideox
from trainer.adapters.file import save_lora
from trainer.adapters.lora import Lora
from trainer.job import AdapterSettings
from trainer.models import open_model
from trainer.models.cogvideox import keys
from trainer.models.cogvideox.comfy_files import write_comfy_files
from trainer.models.cogvideox.positions import rotary_positions
from trainer.models.cogvideox.variants import TRANSFORMER as DEFAULTS
from trainer.models.files import DiffusersFolder
from trainer.models.key_tensors import from_comfy, to_comfy

RANKS = [("2b", 16, 4.0), ("5b", 16, 64.0), ("15_i2v", 16, 4.0)]


@pytest.fixture(scope="module")
def comfy():
    with core("supported_models", "model_detection", "ldm.cogvideo.vae", "lora", "ops") as package:
        yield package


def comfy_model(comfy, variant):
    """Core's model of a tiny variant, told what core does not read from a file.

    Core stretches 5b's rotary positions by a factor that diffusers gives to 2b's alone, and takes a model with a table
    of positions, as 5b I2V has one, for one without rotary positions.
    """
    config = {**TRANSFORMER, **VARIANTS[variant][0], "image_model": "cogvideox", "spatial_interpolation_scale": 1.0}
    config["use_learned_positional_embeddings"] = variant in ("2b", "5b_i2v")  # in core both have a table
    return comfy.supported_models.CogVideoX_T2V({key: value for key, value in config.items() if key != "patch_bias"}).get_model({})


def run(variant, transformer, model):
    """The outputs of diffusers' and of core's class for two examples, [B, C, T, h, w]; a table holds 3 latent frames, pairs need 4."""
    generator, config = torch.Generator().manual_seed(1), transformer.config
    x = torch.randn(2, config.in_channels, 4 if config.patch_size_t else 3, SIDE, SIDE, generator=generator)
    text, timestep = torch.randn(2, TOKENS, 16, generator=generator), torch.tensor([200, 700])
    both = {"timestep": timestep, "ofs": torch.full((2,), 2.0)} if config.ofs_embed_dim else {"timestep": timestep}
    rotary = rotary_positions(DEFAULTS | dict(config), x.shape[1:], x.device) if config.use_rotary_positional_embeddings else None
    with torch.no_grad():
        ours = transformer(x.transpose(1, 2), text, **both, image_rotary_emb=rotary, return_dict=False)[0]
        return ours.transpose(1, 2), model.diffusion_model(x, context=text, **both)


def test_names_are_unique_and_reversible():
    state = tiny_transformer(**VARIANTS["15_i2v"][0]).state_dict()
    comfy = to_comfy(keys.TRANSFORMER, state)
    assert len(comfy) == len(state)
    back = dict(
        pair for name, tensor in comfy.items() for pair in from_comfy(keys.TRANSFORMER, name, tensor, lambda name: len(state[name]))
    )
    assert back.keys() == state.keys() and all(torch.equal(back[name], state[name]) for name in state)


@pytest.mark.parametrize("variant", VARIANTS)
def test_exported_base_equals_comfy(comfy, tmp_path, variant):
    family = open_model(write_tiny_cogvideox(tmp_path / "model", variant))
    family.write_comfy_files(tmp_path / "transformer.safetensors", tmp_path / "vae.safetensors")
    model = comfy_model(comfy, variant)
    model.diffusion_model.load_state_dict(load_file(tmp_path / "transformer.safetensors"))
    ours, theirs = run(variant, family.load_transformer(torch.float32), model)
    assert (ours - theirs).norm() / ours.norm() < 1e-4


@pytest.mark.parametrize(
    ("variant", "found"),
    [
        ("2b", {"use_learned_positional_embeddings": True, "use_rotary_positional_embeddings": False, "in_channels": 16}),
        ("5b", {"use_learned_positional_embeddings": False, "use_rotary_positional_embeddings": True, "in_channels": 16}),
        ("15_i2v", {"patch_size_t": 2, "ofs_embed_dim": 16, "in_channels": 32, "use_rotary_positional_embeddings": True}),
    ],
)
def test_core_detects_exported_files(comfy, tmp_path, variant, found):
    family = open_model(write_tiny_cogvideox(tmp_path / "model", variant))
    family.write_comfy_files(tmp_path / "transformer.safetensors", tmp_path / "vae.safetensors")
    detected = comfy.model_detection.detect_unet_config(load_file(tmp_path / "transformer.safetensors"), "")
    assert detected | found | {"image_model": "cogvideox", "num_layers": 2} == detected


def test_vae_equals_comfy(comfy, tmp_path):
    """One frame: of several, both encode in pieces of different lengths, whose norms differ."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"block_out_channels": (32, 32, 32, 32), "layers_per_block": 1}
    ours: Any = AutoencoderKLCogVideoX(**sizes)
    ours.save_pretrained(tmp_path / "vae")
    theirs = comfy.ldm.cogvideo.vae.AutoencoderKLCogVideoX(**sizes)
    tiny_transformer().save_pretrained(tmp_path / "transformer")
    write_comfy_files(DiffusersFolder(tmp_path), tmp_path / "transformer.safetensors", tmp_path / "vae.safetensors")
    theirs.load_state_dict(load_file(tmp_path / "vae.safetensors"))
    picture, latents = torch.rand(1, 3, 1, 32, 32) * 2 - 1, torch.randn(1, 16, 1, 4, 4)
    with torch.no_grad():
        pairs = [(ours.encode(picture).latent_dist.mode(), theirs.encode(picture)), (ours.decode(latents).sample, theirs.decode(latents))]
    assert all((a - b).norm() / a.norm() < 1e-4 for a, b in pairs)


@pytest.mark.parametrize(("variant", "rank", "alpha"), RANKS)
def test_lora_equals_comfy(comfy, tmp_path, variant, rank, alpha):
    """Core's own key map and patching of an exported file, against the adapter inside diffusers' model."""
    family = open_model(write_tiny_cogvideox(tmp_path / "model", variant))
    transformer, model = family.load_transformer(torch.float32), comfy_model(comfy, variant)
    base, _ = run(variant, transformer, model)
    family.write_comfy_files(tmp_path / "transformer.safetensors", tmp_path / "vae.safetensors")
    lora = Lora.attach(transformer, family.spec, AdapterSettings(rank=rank, alpha=alpha), seed=0)
    for parameter in lora.parameters():
        parameter.data.normal_(0, 0.1)
    save_lora(lora.weights(), family, tmp_path / "lora.safetensors", {})

    model.diffusion_model.load_state_dict(load_file(tmp_path / "transformer.safetensors"))
    file = load_file(tmp_path / "lora.safetensors")
    patches = comfy.lora.load_lora(file, comfy.lora.model_lora_keys_unet(model, {}), log_missing=True)
    assert len(patches) * 3 == len(file) == len(lora.layers) * 3
    state = model.state_dict()
    for name, patch in patches.items():
        state[name] = comfy.lora.calculate_weight([(1.0, patch, 1.0, None, None)], state[name].clone(), name)
    model.load_state_dict(state)
    ours, theirs = run(variant, transformer, model)
    assert (ours - base).norm() / base.norm() > 0.01
    assert (ours - theirs).norm() / ours.norm() < 1e-3
