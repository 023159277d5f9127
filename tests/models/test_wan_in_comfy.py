"""Wan's tensors under ComfyUI's names give the same numbers in ComfyUI's own modules."""

import sys
from importlib import import_module

import pytest
import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from safetensors.torch import load_file

from tests.conftest import find_comfyui
from tests.tiny.wan import write_tiny_wan
from trainer.adapters.file import save_lora
from trainer.adapters.lora import Lora
from trainer.job import AdapterSettings
from trainer.models import open_model
from trainer.models.key_tensors import from_comfy, to_comfy
from trainer.models.shapes import Shapes
from trainer.models.wan import keys
from trainer.models.wan.single_files import LAYOUT

TINY = {"num_attention_heads": 4, "attention_head_dim": 32, "num_layers": 2, "ffn_dim": 256, "text_dim": 64}
VAE = {"z_dim": 16, "dim_mult": [1, 2, 4, 4], "num_res_blocks": 2, "attn_scales": []}


@pytest.fixture(scope="module")
def comfy():
    path = find_comfyui()
    if path is None:
        pytest.skip("no ComfyUI found: set COMFYUI_PATH")
    sys.path.insert(0, str(path))
    try:
        from comfy.cli_args import args

        args.cpu = True
        for name in ("comfy.ldm.wan.model", "comfy.ldm.wan.vae", "comfy.ldm.wan.vae2_2", "comfy.lora", "comfy.ops"):
            import_module(name)
        yield sys.modules["comfy"]
    finally:
        sys.path.remove(str(path))


def test_transformer_names_are_unique_and_reversible():
    state = WanTransformer3DModel(**TINY).state_dict()
    comfy = to_comfy(keys.TRANSFORMER, state)
    assert len(comfy) == len(state)
    back = dict(
        pair for name, tensor in comfy.items() for pair in from_comfy(keys.TRANSFORMER, name, tensor, lambda name: len(state[name]))
    )
    assert back.keys() == state.keys() and all(torch.equal(back[name], state[name]) for name in state)
    with pytest.raises(KeyError):
        keys.TRANSFORMER.place("blocks.0.attn1.to_x")


def test_transformer_equals_comfy(comfy):
    torch.manual_seed(0)
    ours = WanTransformer3DModel(**TINY)
    theirs = comfy.ldm.wan.model.WanModel(
        model_type="t2v",
        dim=128,
        num_heads=4,
        ffn_dim=256,
        text_dim=64,
        num_layers=2,
        freq_dim=256,
        operations=comfy.ops.disable_weight_init,
    )
    theirs.load_state_dict(to_comfy(keys.TRANSFORMER, ours.state_dict()))
    x, sigma, text = torch.randn(2, 16, 3, 8, 8), torch.tensor([300.0, 700.0]), torch.randn(2, 20, 64)
    with torch.no_grad():
        a, b = ours(x, sigma, text, return_dict=False)[0], theirs(x, sigma, text)
    assert (a - b).norm() / a.norm() < 1e-5


def test_vae_equals_comfy(comfy):
    torch.manual_seed(0)
    ours = AutoencoderKLWan(base_dim=16, **VAE)
    theirs = comfy.ldm.wan.vae.WanVAE(dim=16, temperal_downsample=[False, True, True], dropout=0.0, **VAE)
    theirs.load_state_dict(to_comfy(keys.vae_keys(ours.config), ours.state_dict()))
    latents = torch.randn(1, 16, 3, 8, 8)
    with torch.no_grad():
        a, b = ours.decode(latents, return_dict=False)[0], theirs.decode(latents).clamp(-1, 1)
    assert (a - b).norm() / a.norm() < 1e-5


def test_vae_of_wan_2_2_equals_comfy(comfy):
    torch.manual_seed(0)
    shape = {**VAE, "z_dim": 8, "num_res_blocks": 1, "temperal_downsample": [False, True, True]}
    ours = AutoencoderKLWan(
        base_dim=8, decoder_base_dim=12, in_channels=12, out_channels=12, is_residual=True, patch_size=2, scale_factor_spatial=16, **shape
    )
    theirs = comfy.ldm.wan.vae2_2.WanVAE(dim=8, dec_dim=12, dropout=0.0, **shape)
    theirs.load_state_dict(to_comfy(keys.vae_keys(ours.config), ours.state_dict()))
    frames = torch.rand(1, 3, 5, 32, 32) * 2 - 1
    with torch.no_grad():
        a, b = ours.encode(frames).latent_dist.mode(), theirs.encode(frames)
        c, d = ours.decode(a, return_dict=False)[0], theirs.decode(a).clamp(-1, 1)
    assert (a - b).norm() / a.norm() < 1e-5 and (c - d).norm() / c.norm() < 1e-5


@pytest.mark.parametrize(("layers", "blocks", "residual"), [(4, 2, False), (3, 1, False), (4, 2, True), (4, 1, True)])
def test_vae_names_are_unique_and_reversible(layers, blocks, residual):
    multiples = [1, 2, 4, 4][:layers]
    own = {"decoder_base_dim": 8, "in_channels": 12, "out_channels": 12, "patch_size": 2} if residual else {}
    model = AutoencoderKLWan(
        base_dim=4, z_dim=16, dim_mult=multiples, num_res_blocks=blocks, attn_scales=[],
        temperal_downsample=[False, True, True][: layers - 1], is_residual=residual, **own,
    )  # fmt: skip
    state, names = model.state_dict(), keys.vae_keys(model.config)
    comfy = to_comfy(names, state)
    assert len(comfy) == len(state)
    back = dict(pair for name, tensor in comfy.items() for pair in from_comfy(names, name, tensor, lambda name: len(state[name])))
    assert back.keys() == state.keys() and all(torch.equal(back[name], state[name]) for name in state)
    told = LAYOUT.vaes[0].read(Shapes({name: tuple(tensor.shape) for name, tensor in comfy.items()}))
    assert {name: model.config[name] for name in told.values} == told.values


@pytest.mark.parametrize(("rank", "alpha"), [(16, 4.0), (16, 64.0)])
def test_lora_velocity_equals_diffusers(comfy, tmp_path, rank, alpha):
    """Core's own key map and patching of an exported file, against the adapter inside diffusers' model."""
    family = open_model(write_tiny_wan(tmp_path / "tiny"))
    family.write_comfy_files(tmp_path / "transformer.safetensors", tmp_path / "vae.safetensors")
    transformer = family.load_transformer(torch.float32)
    inputs = (torch.randn(2, 16, 3, 4, 4), torch.tensor([200.0, 700.0]), torch.randn(2, 48, 16))
    with torch.no_grad():
        base = transformer(*inputs, return_dict=False)[0]
    lora = Lora.attach(transformer, family.spec, AdapterSettings(rank=rank, alpha=alpha), seed=0)
    for parameter in lora.parameters():
        parameter.data.normal_(0, 0.1)
    save_lora(lora.weights(), family, tmp_path / "lora.safetensors", {})

    theirs = comfy.ldm.wan.model.WanModel(
        model_type="t2v", dim=32, num_heads=2, ffn_dim=64, text_dim=16, num_layers=2, freq_dim=256, operations=comfy.ops.disable_weight_init
    )
    theirs.load_state_dict(load_file(tmp_path / "transformer.safetensors"))
    file = load_file(tmp_path / "lora.safetensors")
    names = {f"diffusion_model.{name.removesuffix('.weight')}": name for name in theirs.state_dict() if name.endswith(".weight")}
    patches = comfy.lora.load_lora(file, names, log_missing=True)
    assert len(patches) * 3 == len(file)
    state = theirs.state_dict()
    for name, patch in patches.items():
        state[name] = comfy.lora.calculate_weight([(1.0, patch, 1.0, None, None)], state[name].clone(), name)
    theirs.load_state_dict(state)
    with torch.no_grad():
        a, b = transformer(*inputs, return_dict=False)[0], theirs(*inputs)
    assert (a - base).norm() / base.norm() > 0.01
    assert (a - b).norm() / a.norm() < 1e-3
