"""HunyuanVideo's tensors and LoRA files under ComfyUI's names, which fuse several modules, give the same numbers in ComfyUI's model."""

import pytest
import torch
from safetensors.torch import load_file

from tests.models.core import core
from tests.tiny.hunyuan_video import POOLED_WIDTH, TEXT_WIDTH, write_i2v_concat, write_i2v_replace, write_t2v
from trainer.adapters.comfy import parted
from trainer.adapters.comfy import to_comfy as lora_to_comfy
from trainer.adapters.file import load_lora, save_lora
from trainer.adapters.lora import Lora
from trainer.adapters.weights import LoraPair, LoraWeights
from trainer.job import AdapterSettings
from trainer.models import open_model
from trainer.models.key_tensors import from_comfy, to_comfy

WRITERS = {"t2v": write_t2v, "i2v-concat": write_i2v_concat, "i2v-replace": write_i2v_replace}


@pytest.fixture(scope="module")
def comfy():
    with core("ldm.hunyuan_video.model", "ldm.models.autoencoder", "lora", "ops", "model_base", "diffusers_convert") as package:
        yield package


class World:
    """A tiny model of a form and the same in ComfyUI's class, with inputs for both.

    Of token replace, ComfyUI 0.33 gives the guidance to the clean frame too, and its single blocks take the first text tokens for that
    frame, unlike the release and diffusers: at time 0 and without guidance clean and noisy frames are modulated alike, so both agree.
    """

    def __init__(self, comfy, form, folder):
        guidance = {"guidance_embeds": False} if form == "i2v-replace" else {}
        self.comfy, self.form, self.family = comfy, form, open_model(WRITERS[form](folder / "model", **guidance))
        self.ours = self.family.load_transformer(torch.float32)
        config = self.ours.config
        self.theirs = comfy.ldm.hunyuan_video.model.HunyuanVideo(
            in_channels=config.in_channels, out_channels=16, vec_in_dim=POOLED_WIDTH, context_in_dim=TEXT_WIDTH, hidden_size=24,
            mlp_ratio=4.0, num_heads=2, depth=2, depth_single_blocks=2, axes_dim=[4, 4, 4], theta=256, patch_size=[1, 2, 2], qkv_bias=True,
            guidance_embed=config.guidance_embeds, byt5=False, meanflow=False, use_cond_type_embedding=False, vision_in_dim=None,
            meanflow_sum=False, operations=comfy.ops.disable_weight_init,
        )  # fmt: skip
        self.family.write_comfy_files(folder / "transformer.safetensors", folder / "vae.safetensors")
        self.theirs.load_state_dict(load_file(folder / "transformer.safetensors"))
        self.x, self.time = torch.randn(1, config.in_channels, 3, 4, 6), torch.tensor([0.0 if form == "i2v-replace" else 300.0])
        self.text, self.pooled = torch.randn(1, 20, TEXT_WIDTH), torch.randn(1, POOLED_WIDTH)
        self.guidance = torch.tensor([6.0]) if config.guidance_embeds else None

    @torch.no_grad()
    def outputs(self):
        """Of both models, without the frame that is given."""
        mask = torch.ones(1, 20, dtype=torch.bool)
        scaled = None if self.guidance is None else self.guidance * 1000
        ours = self.ours(self.x, self.time, self.text, mask, self.pooled, scaled, return_dict=False)[0]
        given = {"guiding_frame_index": torch.tensor([0.0])} if self.form == "i2v-replace" else {}
        theirs = self.theirs(self.x, self.time, self.text, self.pooled, guidance=self.guidance, **given)
        start = int(self.form == "i2v-replace")
        return ours[:, :, start:], theirs[:, :, start:]

    def apply(self, file):
        """Patches ComfyUI's model by core's own key map and merging; the number of matched modules."""
        names = {"diffusion_model." + name: torch.empty(0) for name in self.theirs.state_dict()}
        holder = self.comfy.model_base.HunyuanVideo.__new__(self.comfy.model_base.HunyuanVideo)
        torch.nn.Module.__init__(holder)
        holder.state_dict = lambda: names
        holder.model_config = type("Config", (), {"unet_config": {}})()
        patches = self.comfy.lora.load_lora(file, self.comfy.lora.model_lora_keys_unet(holder, {}), log_missing=True)
        state = self.theirs.state_dict()
        for name, patch in patches.items():
            short = name.removeprefix("diffusion_model.")
            state[short] = self.comfy.lora.calculate_weight([(1.0, patch, 1.0, None, None)], state[short].clone(), short)
        self.theirs.load_state_dict(state)
        return len(patches)


@pytest.fixture(params=WRITERS)
def world(comfy, request, tmp_path):
    torch.manual_seed(0)
    return World(comfy, request.param, tmp_path)


def relative(a, b):
    return (a - b).norm() / a.norm()


def test_transformer_equals_comfy_and_its_names_are_reversible(world):
    assert relative(*world.outputs()) < 1e-5
    keys, state = world.family.keys, world.ours.state_dict()
    comfy = to_comfy(keys, state)
    assert comfy.keys() == world.theirs.state_dict().keys()
    back = dict(pair for name, tensor in comfy.items() for pair in from_comfy(keys, name, tensor, lambda name: len(state[name])))
    assert back.keys() == state.keys() and all(torch.equal(back[name], state[name]) for name in state)
    del state["transformer_blocks.0.attn.to_k.weight"]
    with pytest.raises(KeyError, match="to_k"):
        to_comfy(keys, state)


@pytest.mark.parametrize(("targets", "alpha"), [("all", 4.0), ("all", 64.0), ("attention", 16.0), ("feed-forward", 16.0)])
def test_lora_equals_diffusers(world, tmp_path, targets, alpha):
    """Core's key map and patching of an exported file, against the adapter inside diffusers' model."""
    base, _ = world.outputs()
    lora = Lora.attach(world.ours, world.family.spec, AdapterSettings(rank=16, alpha=alpha, targets=targets), seed=0)
    for parameter in lora.parameters():
        parameter.data.normal_(0, 0.1)
    save_lora(lora.weights(), world.family, tmp_path / "lora.safetensors", {})
    file = load_file(tmp_path / "lora.safetensors")
    assert world.apply(file) * 3 == len(file)
    ours, theirs = world.outputs()
    assert relative(ours, base) > 0.01 and relative(ours, theirs) < 1e-3


def test_vae_equals_comfy(comfy):
    """In diffusers' names, as `write_comfy_files` leaves them: ComfyUI renames them itself. It decodes longer latents in pieces."""
    from diffusers import AutoencoderKLHunyuanVideo

    torch.manual_seed(0)
    ours = AutoencoderKLHunyuanVideo(block_out_channels=(32, 32, 32, 32))
    theirs = comfy.ldm.models.autoencoder.AutoencoderKL(
        embed_dim=16,
        ddconfig={
            "double_z": True, "z_channels": 16, "resolution": 256, "in_channels": 3, "out_ch": 3, "ch": 32, "ch_mult": [1, 1, 1, 1],
            "num_res_blocks": 2, "attn_resolutions": [], "dropout": 0.0, "conv3d": True, "time_compress": 4,
        },
    )  # fmt: skip
    theirs.load_state_dict(comfy.diffusers_convert.convert_vae_state_dict(ours.state_dict()))
    latents = torch.randn(1, 16, 1, 4, 4)
    with torch.no_grad():
        a, b = ours.decode(latents, return_dict=False)[0], theirs.decode(latents)
    assert relative(a, b) < 1e-4


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    return open_model(write_t2v(tmp_path_factory.mktemp("tiny")))


SINGLE, DOUBLE = "single_transformer_blocks.1", "transformer_blocks.0.attn"


@pytest.mark.parametrize(
    "parts",
    [
        {f"{SINGLE}.attn.to_q": (4, 4.0), f"{SINGLE}.attn.to_k": (4, 4.0), f"{SINGLE}.attn.to_v": (4, 4.0), f"{SINGLE}.proj_mlp": (4, 4.0)},
        {f"{SINGLE}.proj_mlp": (4, 8.0), f"{SINGLE}.attn.to_k": (4, 8.0)},
        {f"{DOUBLE}.add_v_proj": (3, 1.0)},
        {f"{DOUBLE}.to_k": (2, 5.0), f"{DOUBLE}.to_q": (7, 0.3), f"{DOUBLE}.to_out.0": (4, 4.0)},  # unlike ranks and strengths
    ],
)
def test_fused_modules_hold_each_part_and_zeros_for_the_others(family, tmp_path, parts):
    """Down halves below each other, up halves block-diagonal, alpha times their number; merged weights survive a file to 1e-6."""
    torch.manual_seed(1)
    shapes = family.layer_shapes
    pairs = {
        name: LoraPair(torch.randn(rank, shapes[name][1]), torch.randn(shapes[name][0], rank), alpha)
        for name, (rank, alpha) in parts.items()
    }
    for comfy, pair in lora_to_comfy(LoraWeights(pairs), family).items():
        modules = family.keys.found(comfy).modules
        merged = torch.cat([merge(pairs[name]) if name in pairs else torch.zeros(shapes[name]).double() for name in modules])
        assert relative(merged, merge(pair)) < 1e-6
        own = [pairs[name] for name in modules if name in pairs]
        assert pair.rank == sum(part.rank for part in own)
        assert any(pair.scale == pytest.approx(part.scale) for part in own)  # other scales are folded into the halves
    save_lora(LoraWeights(pairs), family, tmp_path / "lora.safetensors", {})
    back = load_lora(tmp_path / "lora.safetensors", family).pairs
    assert back.keys() == pairs.keys()
    for name, pair in pairs.items():
        assert back[name].rank == pair.rank and relative(merge(pair), merge(back[name])) < 1e-6


def test_a_lora_on_the_fused_module_itself_is_parted(family):
    """As other trainers write it: every part reads all its ranks, and merging gives the same."""
    pair = LoraPair(torch.randn(4, 24), torch.randn(3 * 24 + 96, 4), 2.0)
    place = family.keys.found("single_blocks.0.linear1")
    back = parted(place, pair, family)
    assert len(back) == 4
    assert relative(merge(pair), merge(lora_to_comfy(LoraWeights(back), family)["single_blocks.0.linear1"])) < 1e-6
    with pytest.raises(KeyError):
        parted(place, LoraPair(pair.down, pair.up[1:], 2.0), family)


def merge(pair):
    return pair.up.double() @ pair.down.double() * pair.scale
