"""HiDream-I1's tensors and LoRA under ComfyUI's names give the same numbers in ComfyUI's own modules.

On square pictures: others are padded by diffusers and the original code, but not by core.
"""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.models.core import core
from tests.tiny.hidream import TOKENS, TRANSFORMER, tiny_transformer, tiny_vae, write_tiny_hidream
from trainer.adapters.file import save_lora
from trainer.adapters.lora import Lora
from trainer.job import AdapterSettings
from trainer.models import open_model
from trainer.models.files import DiffusersFolder
from trainer.models.hidream import keys
from trainer.models.hidream.comfy_files import write_comfy_files
from trainer.models.key_tensors import to_comfy


@pytest.fixture(scope="module")
def comfy() -> Iterator[ModuleType]:
    with core("supported_models", "model_detection", "diffusers_convert", "ldm.modules.diffusionmodules.model", "lora", "ops") as package:
        yield package


def comfy_model(comfy: Any) -> Any:
    """Core's model of the tiny size, its other settings as core detects them."""
    config = comfy.model_detection.detect_unet_config({"caption_projection.0.linear.weight": torch.zeros(1)}, "")
    return comfy.supported_models.HiDream({**config, **TRANSFORMER}).get_model({})


def run(transformer: Any, model: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs of diffusers' and of core's class; core gives the velocity."""
    generator = torch.Generator().manual_seed(1)
    x, pooled, t5 = (torch.randn(*shape, generator=generator) for shape in ((2, 16, 8, 8), (2, 32), (2, TOKENS, 16)))
    llama, timestep = torch.randn(2, 2, TOKENS, 16, generator=generator), torch.tensor([200.0, 700.0])
    with torch.no_grad():
        ours = transformer(x, timestep, t5, llama, pooled, return_dict=False)[0]
        return -ours, model.diffusion_model(x, timestep, pooled, t5, llama.movedim(0, 1))


def test_names_are_the_same() -> None:
    state = tiny_transformer().state_dict()
    assert to_comfy(keys.TRANSFORMER, state).keys() == state.keys()


def test_exported_base_equals_comfy(comfy: Any, tmp_path: Path) -> None:
    family, model = open_model(write_tiny_hidream(tmp_path / "model")), comfy_model(comfy)
    family.write_comfy_files(tmp_path / "transformer.safetensors", tmp_path / "vae.safetensors")
    file = load_file(tmp_path / "transformer.safetensors")
    assert comfy.model_detection.detect_unet_config(file, "")["image_model"] == "hidream"
    model.diffusion_model.load_state_dict(file)
    ours, theirs = run(family.load_transformer(torch.float32), model)
    assert (ours - theirs).norm() / ours.norm() < 1e-4


def test_vae_equals_comfy(comfy: Any, tmp_path: Path) -> None:
    """The exported file, in the names of Flux' own, in core's encoder and decoder; core's conversion of diffusers' names gives the same."""
    torch.manual_seed(0)
    ours = tiny_vae(width=32, groups=32)
    ours.save_pretrained(tmp_path / "vae")
    tiny_transformer().save_pretrained(tmp_path / "transformer")
    write_comfy_files(DiffusersFolder(tmp_path), tmp_path / "transformer.safetensors", tmp_path / "vae.safetensors")
    file = load_file(tmp_path / "vae.safetensors")
    converted = comfy.diffusers_convert.convert_vae_state_dict(ours.state_dict())
    assert file.keys() == converted.keys() and all(torch.equal(file[name], tensor) for name, tensor in converted.items())
    sizes: dict[str, Any] = {
        "attn_resolutions": [],
        "z_channels": 16,
        "resolution": 64,
        "in_channels": 3,
        "out_ch": 3,
        "ch": 32,
        "ch_mult": [1] * 4,
        "num_res_blocks": 1,
    }
    model = comfy.ldm.modules.diffusionmodules.model
    encoder, decoder = model.Encoder(**sizes), model.Decoder(**sizes)
    torch.nn.ModuleDict({"encoder": encoder, "decoder": decoder}).load_state_dict(file)
    picture, latents = torch.rand(1, 3, 32, 32) * 2 - 1, torch.randn(1, 16, 4, 4)
    with torch.no_grad():
        pairs = [
            (ours.encode(picture).latent_dist.parameters, encoder(picture)),
            (ours.decode(latents).sample, decoder(latents)),
        ]
    assert all((a - b).norm() / a.norm() < 1e-4 for a, b in pairs)


@pytest.mark.parametrize("alpha", [4.0, 64.0])
def test_lora_equals_comfy(comfy: Any, tmp_path: Path, alpha: float) -> None:
    """Core's own key map and patching of an exported file, against the adapter inside diffusers' model."""
    family, model = open_model(write_tiny_hidream(tmp_path / "model")), comfy_model(comfy)
    transformer = family.load_transformer(torch.float32)
    model.diffusion_model.load_state_dict(transformer.state_dict())
    base, _ = run(transformer, model)
    lora = Lora.attach(transformer, family.spec, AdapterSettings(rank=16, alpha=alpha), seed=0)
    for parameter in lora.parameters():
        parameter.data.normal_(0, 0.1)
    save_lora(lora.weights(), family, tmp_path / "lora.safetensors", {})

    file = load_file(tmp_path / "lora.safetensors")
    patches = comfy.lora.load_lora(file, comfy.lora.model_lora_keys_unet(model, {}), log_missing=True)
    assert len(patches) * 2 == len(file) == len(lora.layers) * 2  # alpha is folded in
    state = model.state_dict()
    for name, patch in patches.items():
        state[name] = comfy.lora.calculate_weight([(1.0, patch, 1.0, None, None)], state[name].clone(), name)
    model.load_state_dict(state)
    ours, theirs = run(transformer, model)
    assert (ours - base).norm() / base.norm() > 0.01
    assert (ours - theirs).norm() / ours.norm() < 1e-3
