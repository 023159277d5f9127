"""HiDream-I1's single files: how they are told from their headers, and what is read there."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

from ..layout import Config, FileLayout, PartKind, Told
from ..shapes import Shapes
from . import keys

HEAD_SIZE, PATCH = 128, 2  # of all releases; files of other models say it in their metadata
LATENT_CHANNELS = 16


def _transformer(shapes: Shapes) -> Told | None:
    """The configuration of HiDreamImageTransformer2DModel, but for the sizes of its heads and patches."""
    if {"t_embedder1.mlp.0.weight", "x_embedder.proj1.weight"} <= shapes.keys():
        return Told(unsupported="O1, which has no VAE")
    if not {"caption_projection.0.linear.weight", "double_stream_blocks.0.block.adaLN_modulation.1.weight"} <= shapes.keys():
        return None
    width, patch = shapes["x_embedder.proj.weight"]
    captions = shapes.count("caption_projection.*.linear.")
    return Told({
        "num_layers": shapes.count("double_stream_blocks.*."), "num_single_layers": shapes.count("single_stream_blocks.*."),
        "num_attention_heads": max(width // HEAD_SIZE, 1), "in_channels": patch // PATCH**2,
        "out_channels": shapes["final_layer.linear.weight"][0] // PATCH**2,
        "num_routed_experts": shapes.count("double_stream_blocks.0.block.ff_i.experts.*."),
        "text_emb_dim": shapes["p_embedder.pooled_embedder.linear_1.weight"][1],
        "caption_channels": [shapes[f"caption_projection.{number}.linear.weight"][1] for number in (captions - 1, 0)],
    })  # fmt: skip


def _channels(config: Config) -> Hashable:
    return config["in_channels"], config["out_channels"]


def _vae(shapes: Shapes, stage: str, block: str) -> Told | None:
    """The configuration of AutoencoderKL, for 16 channels and no convolutions about them."""
    first, last = f"encoder.{stage}.0.{block}.0.", "decoder.conv_in.weight"
    if not {f"{first}conv1.weight", last} <= shapes.keys() or shapes[last][1:] != (LATENT_CHANNELS, 3, 3) or "quant_conv.weight" in shapes:
        return None
    stages = shapes.count(f"encoder.{stage}.*.")
    return Told({
        "block_out_channels": [shapes[f"encoder.{stage}.{n}.{block}.0.conv1.weight"][0] for n in range(stages)],
        "down_block_types": ["DownEncoderBlock2D"] * stages, "up_block_types": ["UpDecoderBlock2D"] * stages,
        "layers_per_block": shapes.count(f"encoder.{stage}.0.{block}.*."), "latent_channels": LATENT_CHANNELS,
        "in_channels": shapes["encoder.conv_in.weight"][1], "out_channels": shapes["decoder.conv_out.weight"][0],
    })  # fmt: skip


LAYOUT = FileLayout(
    configs=Path(__file__).parent / "configs",
    transformer=PartKind("a HiDream diffusion model", _transformer, lambda _: keys.TRANSFORMER, _channels),
    vaes=(
        PartKind("a Flux VAE", lambda shapes: _vae(shapes, "down", "block"), keys.vae_keys),
        PartKind("a Flux VAE in diffusers' names", lambda shapes: _vae(shapes, "down_blocks", "resnets")),
    ),
    encoders={"text_encoder": "clip-text", "text_encoder_2": "clip-text", "text_encoder_3": "t5", "text_encoder_4": "llama"},
    tokenizers={
        "tokenizer": "sd1_tokenizer", "tokenizer_2": "sd1_tokenizer", "tokenizer_3": "text_encoders/t5_tokenizer",
        "tokenizer_4": "text_encoders/llama_tokenizer",
    },
    file_names={"i1-full": r"^(?!.*(dev|fast))", "i1-dev": "dev", "i1-fast": "fast"},
)  # fmt: skip
