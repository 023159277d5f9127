"""HunyuanVideo-1.5's tensors and LoRA under ComfyUI's names, which fuse several modules, give the same numbers in ComfyUI's model."""

from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.models.core import core
from tests.tiny.hunyuan_video_15 import TEXT, VAE, write_tiny
from trainer.adapters.file import load_lora, save_lora
from trainer.adapters.lora import Lora
from trainer.job import AdapterSettings
from trainer.models.files import DiffusersFolder
from trainer.models.hunyuan_video_15 import Family, keys
from trainer.models.hunyuan_video_15.text import CROP, SYSTEM
from trainer.models.key_tensors import from_comfy, to_comfy

FIXED = {  # the sizes that core does not read from a file
    "num_attention_heads": 1, "attention_head_dim": 128, "rope_axes_dim": (16, 56, 56), "text_embed_2_dim": 1472, "image_embed_dim": 1152,
}  # fmt: skip


@pytest.fixture(scope="module")
def comfy():
    names = "model_detection", "ldm.hunyuan_video.vae_refiner", "ldm.models.autoencoder", "text_encoders.hunyuan_video", "lora"
    with core(*names) as package:
        yield package


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model with core's fixed sizes, and its transformer's and VAE's tensors in ComfyUI's names."""
    folder = tmp_path_factory.mktemp("exported")
    family = Family(DiffusersFolder(write_tiny(folder / "model", "i2v", **FIXED)))  # whose encoders are not of these widths
    family.write_comfy_files(folder / "transformer.safetensors", folder / "vae.safetensors")
    return family, load_file(folder / "transformer.safetensors"), load_file(folder / "vae.safetensors")


@pytest.fixture
def model(comfy, exported):
    """The model that core makes of the file by what it finds in it."""
    config = comfy.model_detection.model_config_from_unet(exported[1], "")
    assert type(config).__name__ == "HunyuanVideo15"
    model = config.get_model(exported[1], "")
    model.diffusion_model.load_state_dict(exported[1])
    return model


def outputs(transformer: Any, model: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Of diffusers' and of core's class for a text, words in quotes and a picture."""
    generator = torch.Generator().manual_seed(1)
    x, text, glyphs, seen = (
        torch.randn(1, *shape, generator=generator) for shape in ((65, 2, 2, 4), (5, TEXT), (3, 1472), (4, 1152))
    )  # fmt: skip
    time = torch.tensor([300.0])
    with torch.no_grad():
        ours = transformer(
            hidden_states=x, timestep=time, encoder_hidden_states=text, encoder_attention_mask=torch.ones(1, 5), image_embeds=seen,
            encoder_hidden_states_2=glyphs, encoder_attention_mask_2=torch.ones(1, 3), return_dict=False,
        )[0]  # fmt: skip
        return ours, model.diffusion_model(x, time, text, txt_byt5=glyphs, clip_fea=seen)


def relative(a, b):
    return (a - b).norm() / a.norm()


def test_exported_base_equals_comfy_and_its_names_are_reversible(model, exported):
    family, comfy_state, _ = exported
    transformer = family.load_transformer(torch.float32)
    assert relative(*outputs(transformer, model)) < 1e-4
    state = transformer.state_dict()
    back = dict(
        pair for name, tensor in comfy_state.items() for pair in from_comfy(keys.TRANSFORMER, name, tensor, lambda name: len(state[name]))
    )
    assert back.keys() == state.keys() and all(torch.equal(back[name], state[name]) for name in state)


@pytest.mark.parametrize("alpha", [4.0, 64.0])
def test_lora_equals_comfy(comfy, model, exported, tmp_path, alpha):
    """Core's own key map and patching of an exported file, against the adapter inside diffusers' model.

    Of the last block's text query, key and value only the last two are trained.
    """
    family = exported[0]
    transformer = family.load_transformer(torch.float32)
    base, _ = outputs(transformer, model)
    lora = Lora.attach(transformer, family.spec, AdapterSettings(rank=16, alpha=alpha), seed=0)
    for parameter in lora.parameters():
        parameter.data.normal_(0, 0.05, generator=torch.Generator().manual_seed(2))
    save_lora(lora.weights(), family, tmp_path / "lora.safetensors", {})
    assert load_lora(tmp_path / "lora.safetensors", family).pairs.keys() == lora.weights().pairs.keys()

    file = load_file(tmp_path / "lora.safetensors")
    patches = comfy.lora.load_lora(file, comfy.lora.model_lora_keys_unet(model, {}), log_missing=True)
    assert len(patches) * 3 == len(file)
    state = model.state_dict()
    for name, patch in patches.items():
        state[name] = comfy.lora.calculate_weight([(1.0, patch, 1.0, None, None)], state[name].clone(), name)
    model.load_state_dict(state)
    ours, theirs = outputs(transformer, model)
    assert relative(ours, base) > 0.01 and relative(ours, theirs) < 1e-3


def test_vae_equals_comfy(comfy, exported):
    """Core's is made at a size of its own. Of several frames it lets the early ones see the later, so there no frame sees another's pixels
    by attention here."""
    family, _, state = exported
    ours: Any = family.load_vae()
    sizes = {
        "block_out_channels": VAE["block_out_channels"], "num_res_blocks": VAE["layers_per_block"], "z_channels": 32, "in_channels": 3,
        "out_channels": 3, "ffactor_spatial": 16, "ffactor_temporal": 4,
    }  # fmt: skip
    refiner = comfy.ldm.hunyuan_video.vae_refiner
    theirs = torch.nn.ModuleDict({"encoder": refiner.Encoder(**sizes), "decoder": refiner.Decoder(**sizes)})
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected and all(".temb_proj." in name for name in missing), "what the released file lacks too: core does not use it"
    assert to_comfy(keys.VAE, ours.state_dict()).keys() == state.keys()
    for frames in (1, 9):
        video = torch.rand(1, 3, frames, 32, 32) * 2 - 1
        latents = torch.randn(1, 32, (frames - 1) // 4 + 1, 2, 2)
        for name, parameter in [*ours.named_parameters(), *theirs.named_parameters()] if frames > 1 else ():
            if "proj_out" in name:
                parameter.data.zero_()
        with torch.no_grad():
            assert relative(ours.encode(video).latent_dist.mode(), theirs["encoder"](video)) < 1e-4
            assert relative(ours.decode(latents).sample, theirs["decoder"](latents)) < 1e-4


def test_the_template_ends_where_it_is_cropped(comfy):
    """By the tokenizer of the released model, which core has too."""
    tokenizer = comfy.text_encoders.hunyuan_video.HunyuanVideo15Tokenizer().qwen25_7b.tokenizer
    assert len(tokenizer(f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n").input_ids) == CROP
