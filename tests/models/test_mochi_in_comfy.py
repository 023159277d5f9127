"""Mochi's tensors and LoRA under ComfyUI's names give the same numbers in ComfyUI's own modules."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from diffusers.models.attention import FeedForward
from safetensors.torch import load_file

from tests.models.core import core
from tests.tiny.mochi import tiny_transformer, tiny_vae, write_tiny_mochi
from trainer.adapters.file import save_lora
from trainer.adapters.lora import Lora
from trainer.job import AdapterSettings
from trainer.models import open_model
from trainer.models.key_tensors import from_comfy, to_comfy
from trainer.models.mochi import keys

WIDTH, TEXT, HEADS, LAYERS = 48, 96, 3, 2
HIDDEN = 8192  # of the feed-forward: core takes no other


@pytest.fixture(scope="module")
def comfy() -> Iterator[ModuleType]:
    with core("supported_models", "model_detection", "ldm.genmo.vae.model", "lora", "ops") as package:
        yield package


@pytest.fixture
def transformer() -> Any:
    """The tiny transformer with the feed-forward's width that core fixes."""
    torch.manual_seed(0)
    made = tiny_transformer()
    for block in made.transformer_blocks:
        block.ff = FeedForward(WIDTH, inner_dim=HIDDEN, activation_fn="swiglu", bias=False)
    return made.requires_grad_(False).eval()


def comfy_model(comfy: Any) -> Any:
    """Core's model of the tiny size, its other settings as core detects them."""
    config = comfy.model_detection.detect_unet_config({"t5_yproj.weight": torch.zeros(1)}, "")
    changes = {
        "depth": LAYERS,
        "num_heads": HEADS,
        "hidden_size_x": WIDTH,
        "hidden_size_y": TEXT,
        "t5_feat_dim": 16,
        "mlp_ratio_x": 1.5 * HIDDEN / WIDTH,
    }
    return comfy.supported_models.GenmoMochi({**config, **changes}).get_model({})


def run(transformer: Any, model: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs of diffusers' and of core's class; core gives the velocity."""
    generator = torch.Generator().manual_seed(1)
    x, text = torch.randn(2, 12, 3, 4, 6, generator=generator), torch.randn(2, 7, 16, generator=generator)
    mask, sigma = torch.ones(2, 7, dtype=torch.bool), torch.tensor([0.2, 0.7])
    with torch.no_grad():
        ours = transformer(x, text, (1 - sigma) * 1000, mask, return_dict=False)[0]
        return -ours, model.diffusion_model(x, sigma, text, mask, num_tokens=7)


def test_names_are_unique_and_reversible() -> None:
    vae = tiny_vae()
    pairs = [(tiny_transformer().state_dict(), keys.transformer(LAYERS)), (vae.state_dict(), keys.vae(vae.config))]
    for state, names in pairs:
        back: dict[str, torch.Tensor] = {}
        for name, tensor in to_comfy(names, state).items():
            back |= dict(from_comfy(names, name, tensor, lambda name, state=state: len(state[name])))
        assert back.keys() == state.keys() and all(torch.equal(back[name], state[name]) for name in state)


def test_base_equals_comfy(comfy: Any, transformer: Any) -> None:
    model = comfy_model(comfy)
    model.diffusion_model.load_state_dict(to_comfy(keys.transformer(LAYERS), transformer.state_dict()))
    ours, theirs = run(transformer, model)
    assert (ours - theirs).norm() / ours.norm() < 1e-4


@pytest.mark.parametrize("alpha", [4.0, 64.0])
def test_lora_equals_comfy(comfy: Any, transformer: Any, tmp_path: Path, alpha: float) -> None:
    """Core's own key map and patching of an exported file, against the adapter inside diffusers' model."""
    family, model = open_model(write_tiny_mochi(tmp_path / "model")), comfy_model(comfy)
    model.diffusion_model.load_state_dict(to_comfy(family.keys, transformer.state_dict()))
    base, _ = run(transformer, model)
    lora = Lora.attach(transformer, family.spec, AdapterSettings(rank=16, alpha=alpha), seed=0)
    for parameter in lora.parameters():
        parameter.data.normal_(0, 0.1)
    save_lora(lora.weights(), family, tmp_path / "lora.safetensors", {})

    file = load_file(tmp_path / "lora.safetensors")
    patches = comfy.lora.load_lora(file, comfy.lora.model_lora_keys_unet(model, {}), log_missing=True)
    fused = [name for name in lora.layers if name.endswith((".to_q", ".to_k", ".add_q_proj", ".add_k_proj"))]
    assert len(patches) * 3 == len(file) and len(patches) == len(lora.layers) - len(fused)
    state = model.state_dict()
    for name, patch in patches.items():
        state[name] = comfy.lora.calculate_weight([(1.0, patch, 1.0, None, None)], state[name].clone(), name)
    model.load_state_dict(state)
    ours, theirs = run(transformer, model)
    assert (ours - base).norm() / base.norm() > 0.01
    assert (ours - theirs).norm() / ours.norm() < 1e-3


def test_vae_equals_comfy(comfy: Any, tmp_path: Path) -> None:
    """Apart from two differences: core's encoder lets frames see later ones, and its decoder drops surplus frames in each stage."""
    folder = write_tiny_mochi(tmp_path / "model")
    open_model(folder).write_comfy_files(tmp_path / "transformer.safetensors", tmp_path / "vae.safetensors")
    ours: Any = open_model(folder).load_vae()
    for module in ours.modules():
        if hasattr(module, "is_causal"):
            module.is_causal = False
    for stage in ours.decoder.up_blocks:
        stage.register_forward_hook(lambda stage, _, made: (made[0][:, :, stage.temporal_expansion - 1 :], made[1]))
    pieces = partial(
        dict, base_channels=32, channel_multipliers=[1, 2, 3, 4], num_res_blocks=[1] * 5, latent_dim=12, padding_mode="replicate"
    )
    vae = comfy.ldm.genmo.vae.model
    encoder = vae.Encoder(
        **pieces(in_channels=15, temporal_reductions=[1, 2, 3], spatial_reductions=[2, 2, 2], prune_bottlenecks=[False] * 5),
        has_attentions=[False, True, True, True, True], input_is_conv_1x1=True,
    )  # fmt: skip
    decoder = vae.Decoder(
        **pieces(temporal_expansions=[1, 2, 3], spatial_expansions=[2, 2, 2], has_attention=[False] * 5, output_norm=False)
    )
    torch.nn.ModuleDict({"encoder": encoder, "decoder": decoder}).load_state_dict(load_file(tmp_path / "vae.safetensors"))
    clip, latents = torch.rand(1, 3, 7, 16, 16) * 2 - 1, torch.randn(1, 12, 2, 2, 2)
    with torch.no_grad():
        pairs = [(ours.encode(clip).latent_dist.mode(), encoder(clip).mode()), (ours.decoder(latents)[0], decoder(latents))]
    assert all((a - b).norm() / a.norm() < 1e-4 for a, b in pairs)


def test_core_detects_exported_files(comfy: Any, tmp_path: Path) -> None:
    folder = write_tiny_mochi(tmp_path / "model")
    open_model(folder).write_comfy_files(tmp_path / "transformer.safetensors", tmp_path / "vae.safetensors")
    detected = comfy.model_detection.detect_unet_config(load_file(tmp_path / "transformer.safetensors"), "")
    assert detected["image_model"] == "mochi_preview" and detected["qk_norm"]
