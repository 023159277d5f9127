"""LTX-Video's single files: how they are told from their headers, alone or all in one checkpoint."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

from ..key_map import KeyMap, Rule
from ..layout import Config, FileLayout, PartKind, Told
from ..shapes import Shapes
from . import keys
from .release import NEWER
from .vae_pieces import tensor_to_comfy

HEADS = 32  # of all releases


def _transformer(shapes: Shapes) -> Told | None:
    """The configuration of LTXVideoTransformer3DModel, and of distilled releases the steps that their metadata list."""
    if not {"adaln_single.emb.timestep_embedder.linear_1.weight", "patchify_proj.weight"} <= shapes.keys():
        return None
    if "audio_adaln_single.linear.weight" in shapes:
        return Told(unsupported="LTX-2, which makes sound with the picture")
    width, channels = shapes["patchify_proj.weight"]
    values: dict[str, Any] = {
        "num_layers": shapes.count("transformer_blocks.*."), "num_attention_heads": HEADS, "attention_head_dim": width // HEADS,
        "in_channels": channels, "out_channels": shapes["proj_out.weight"][0],
        "caption_channels": shapes["caption_projection.linear_1.weight"][1],
        "cross_attention_dim": shapes["transformer_blocks.0.attn2.to_k.weight"][1],
    }  # fmt: skip
    steps = shapes.config.get("allowed_inference_steps")
    return Told(values | ({"allowed_inference_steps": steps} if steps else {}))


def _vae(shapes: Shapes) -> Told | None:
    """Which of the three kinds of AutoencoderKLLTXVideo it is; the sizes of each are those of its release."""
    if not {"encoder.conv_in.conv.weight", "per_channel_statistics.mean-of-means"} <= shapes.keys():
        return None
    newer, timed = "encoder.down_blocks.1.conv.conv.weight" in shapes, "decoder.last_scale_shift_table" in shapes
    return Told({"down_block_types": [NEWER if newer else "LTXVideoDownBlock3D"] * 4, "timestep_conditioning": timed})


def _vae_keys(config: Config) -> KeyMap:
    """A rule for each tensor, since the numbers of ComfyUI's blocks depend on the configuration."""
    from diffusers import AutoencoderKLLTXVideo

    from ..loading import empty_model

    names = empty_model(AutoencoderKLLTXVideo, config).state_dict()
    return KeyMap([Rule(name, tensor_to_comfy(name, config)) for name in names], prefix="")


def _release(config: Config) -> Hashable:
    newer, timed = NEWER in config["down_block_types"], bool(config["timestep_conditioning"])
    return "the VAE of 0.9.5 and later" if newer else "the VAE of 0.9.1" if timed else "the VAE of 0.9"


LAYOUT = FileLayout(
    configs=Path(__file__).parent / "configs",
    transformer=PartKind("an LTX-Video diffusion model", _transformer, lambda _: keys.TRANSFORMER),
    vaes=(PartKind("an LTX-Video VAE", _vae, _vae_keys, _release),),
    encoders={"text_encoder": "t5"},
    tokenizers={"tokenizer": "text_encoders/t5_tokenizer"},
    agreements=(("transformer", "caption_channels", "text_encoder", "d_model"),),
)
