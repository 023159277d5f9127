"""Wan's tensors under ComfyUI's names give the same numbers in ComfyUI's own modules, which recognise each variant by its file."""

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel

from tests.models import core
from tests.tiny.wan import CHANNELS, VAE_OF_5B, write_tiny_wan
from trainer.adapters.file import save_lora
from trainer.adapters.lora import Lora
from trainer.job import AdapterSettings
from trainer.models.files import DiffusersFolder
from trainer.models.key_tensors import from_comfy, to_comfy
from trainer.models.shapes import Shapes
from trainer.models.wan import Family, keys
from trainer.models.wan.single_files import LAYOUT

SEEN = 1280  # width of the image embedding, which core fixes
I2V: dict[str, Any] = {"in_channels": 2 * CHANNELS + 4}
SEES: dict[str, Any] = {**I2V, "sees": True, "image_dim": SEEN}
# settings of the tiny model, pictures that the image encoder sees, and core's class of the whole model
VARIANTS: dict[str, tuple[dict[str, Any], int, str]] = {
    "2.1 t2v": ({}, 0, "WAN21"),
    "2.1 i2v": (SEES, 1, "WAN21"),
    "2.1 flf2v": ({**SEES, "pos_embed_seq_len": 2 * 5}, 2, "WAN21"),
    "2.2 i2v": (I2V, 0, "WAN21"),
    "2.2 ti2v": ({"vae": VAE_OF_5B, "index": {"expand_timesteps": True}}, 0, "WAN22"),
}


@pytest.fixture(scope="module")
def comfy():
    names = "model_detection", "model_base", "model_patcher", "lora", "lora_convert", "utils", "ldm.wan.vae", "ldm.wan.vae2_2"
    with core.core(*names) as package:
        yield package


class Case:
    """A tiny model of a variant, its file for ComfyUI, and two examples of what its transformer is called with."""

    def __init__(self, variant: str, folder: Path) -> None:
        settings, pictures, self.core_class = VARIANTS[variant]
        self.family = Family(DiffusersFolder(write_tiny_wan(folder / "tiny", **settings)))  # whose image encoder is none of core's width
        self.file, self.vae_file = folder / "transformer.safetensors", folder / "vae.safetensors"
        self.family.write_comfy_files(self.file, self.vae_file)
        spec, generator = self.family.spec, torch.Generator().manual_seed(5)

        def noise(*shape: int) -> torch.Tensor:
            return torch.randn(2, *shape, generator=generator)

        latents = spec.latent_channels, 3, 4, 4
        given: dict[str, torch.Tensor] = {}
        if spec.required:
            given["frames"] = noise(*latents)
        if pictures:
            given["seen"] = noise(pictures, 5, SEEN)
        if spec.first_frame_optional:
            given |= {"first_frame": noise(latents[0], 1, 4, 4), "has_first_frame": torch.tensor([True, False])}
        x = self.family.conditioned(noise(*latents), given)
        text = self.family.text_inputs([{"text": torch.randn(20, 16, generator=generator)} for _ in range(2)])
        self.inputs = self.family.denoiser_inputs(x, torch.tensor([0.2, 0.7]), text, given)
        self.seen = given["seen"].flatten(1, 2) if pictures else None

    def ours(self, transformer: Any) -> torch.Tensor:
        with torch.no_grad():
            return transformer(**self.inputs, return_dict=False)[0]

    def theirs(self, patcher: Any) -> torch.Tensor:
        times, frames = self.inputs["timestep"], self.inputs["hidden_states"].shape[2]
        if times.ndim == 2:  # core has one for each latent frame
            times = times.unflatten(1, (frames, -1))[:, :, 0]
        with torch.no_grad():
            model = patcher.model.diffusion_model
            return model(self.inputs["hidden_states"], times, self.inputs["encoder_hidden_states"], clip_fea=self.seen)


@pytest.fixture(scope="module", params=VARIANTS)
def case(request, tmp_path_factory):
    return Case(request.param, tmp_path_factory.mktemp("wan"))


def test_names_are_unique_and_reversible():
    shape: dict[str, Any] = {"num_attention_heads": 1, "attention_head_dim": 12, "num_layers": 2, "ffn_dim": 8, "text_dim": 8}
    state = WanTransformer3DModel(**shape, image_dim=8, added_kv_proj_dim=12, pos_embed_seq_len=4).state_dict()
    vaes = [AutoencoderKLWan(**{**shape, "num_res_blocks": blocks}) for shape in ({"base_dim": 4}, VAE_OF_5B) for blocks in (1, 2)]
    for names, tensors in ((keys.TRANSFORMER, state), *((keys.vae_keys(vae.config), vae.state_dict()) for vae in vaes)):
        comfy = to_comfy(names, tensors)
        assert len(comfy) == len(tensors)
        back = dict(pair for name, tensor in comfy.items() for pair in from_comfy(names, name, tensor, lambda _: 0))
        assert back.keys() == tensors.keys() and all(torch.equal(back[name], tensors[name]) for name in tensors)
    with pytest.raises(KeyError):
        keys.TRANSFORMER.place("blocks.0.attn1.to_x")
    for vae in vaes:
        comfy = to_comfy(keys.vae_keys(vae.config), vae.state_dict())
        told = LAYOUT.vaes[0].read(Shapes({name: tuple(tensor.shape) for name, tensor in comfy.items()}))
        assert told is not None
        own = {name: vae.config.get(name) for name in told.values}
        assert told.values == {**own, "decoder_base_dim": None if own["decoder_base_dim"] == own["base_dim"] else own["decoder_base_dim"]}


def test_transformer_equals_comfy(comfy, case):
    patcher = core.load_model(comfy, case.file)
    assert type(patcher.model).__name__ == case.core_class
    ours, theirs = case.ours(case.family.load_transformer(torch.float32)), case.theirs(patcher)
    assert (ours - theirs).norm() / ours.norm() < 1e-4


@pytest.mark.parametrize(("rank", "alpha"), [(16, 4.0), (16, 64.0)])
def test_lora_velocity_equals_diffusers(comfy, case, tmp_path, rank, alpha):
    """Core's own key map and patching of an exported file, against the adapter inside diffusers' model."""
    transformer = case.family.load_transformer(torch.float32)
    base = case.ours(transformer)
    lora = Lora.attach(transformer, case.family.spec, AdapterSettings(rank=rank, alpha=alpha), seed=0)
    for parameter in lora.parameters():
        parameter.data.normal_(0, 0.1)
    save_lora(lora.weights(), case.family, tmp_path / "lora.safetensors", {})
    patcher = core.with_lora(comfy, core.load_model(comfy, case.file), tmp_path / "lora.safetensors")
    ours, theirs = case.ours(transformer), case.theirs(patcher)
    assert (ours - base).norm() / base.norm() > 0.01
    assert (ours - theirs).norm() / ours.norm() < 1e-3


@pytest.mark.parametrize("wide", [False, True], ids=["2.1", "2.2 5b"])
def test_vae_equals_comfy(comfy, wide):
    """Core fixes two residual blocks in each stage."""
    torch.manual_seed(0)
    shape = {"z_dim": 16, "dim_mult": [1, 2, 4, 4], "num_res_blocks": 2, "attn_scales": []}
    theirs_shape = {"dim": 16, "temperal_downsample": [False, True, True], "dropout": 0.0, **shape}
    if wide:
        ours = AutoencoderKLWan(**{**VAE_OF_5B, **shape, "base_dim": 16, "decoder_base_dim": 16})
        theirs = comfy.ldm.wan.vae2_2.WanVAE(dec_dim=16, **theirs_shape)
    else:
        ours, theirs = AutoencoderKLWan(base_dim=16, **shape), comfy.ldm.wan.vae.WanVAE(**theirs_shape)
    theirs.load_state_dict(to_comfy(keys.vae_keys(ours.config), ours.state_dict()))
    latents, clip = torch.randn(1, 16, 3, 4, 4), torch.rand(1, 3, 5, 32, 32) * 2 - 1
    with torch.no_grad():
        drawn, expected = ours.decode(latents, return_dict=False)[0], theirs.decode(latents).clamp(-1, 1)
        encoded, known = ours.encode(clip, return_dict=False)[0].mode(), theirs.encode(clip)
    assert (drawn - expected).norm() / expected.norm() < 1e-5
    assert (encoded - known).norm() / known.norm() < 1e-5
