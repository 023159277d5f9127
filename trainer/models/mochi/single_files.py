"""Mochi's single files: how they are told from their headers, and what is read there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..layout import FileLayout, PartKind, Told, latent_channels
from ..shapes import Shapes
from . import keys

CHANNELS = 12  # of the latents of all releases


def _transformer(shapes: Shapes) -> Told | None:
    """The configuration of MochiTransformer3DModel."""
    if not {"t5_yproj.weight", "x_embedder.proj.weight", "blocks.0.attn.qkv_x.weight"} <= shapes.keys():
        return None
    width, channels, patch = shapes["x_embedder.proj.weight"][:3]
    if channels != CHANNELS:
        return Told(unsupported=f"with {channels} input channels instead of {CHANNELS}")
    head, (pooled, text) = shapes["blocks.0.attn.q_norm_x.weight"][0], shapes["t5_yproj.weight"]
    return Told({
        "num_layers": shapes.count("blocks.*."), "num_attention_heads": width // head, "attention_head_dim": head,
        "pooled_projection_dim": pooled, "text_embed_dim": text, "time_embed_dim": shapes["t_embedder.mlp.0.weight"][1],
        "in_channels": channels, "patch_size": patch,
    })  # fmt: skip


def _vae(shapes: Shapes) -> Told | None:
    """The configuration of AutoencoderKLMochi; the authors' own files hold one half each."""
    parts = {"encoder": "layers.1.stack.5.weight", "decoder": "blocks.0.1.stack.5.weight"}
    found = [part for part, name in parts.items() if name in shapes or f"{part}.{name}" in shapes]
    if len(found) == 1:
        return Told(unsupported=f"its {found[0]} alone")
    return Told(_vae_sizes(shapes)) if found else None


def _vae_sizes(shapes: Shapes) -> dict[str, Any]:
    layers = shapes.count("encoder.layers.*.")  # in front a linear one, then residual blocks, those that halve, residual blocks
    halving = [n for n in range(layers) if f"encoder.layers.{n}.layers.0.weight" in shapes]
    steps = [shapes[f"encoder.layers.{n}.layers.0.weight"] for n in halving]  # convolutions as large as their steps
    below = [shapes.count(f"encoder.layers.{n}.layers.*.") - 1 for n in halving]
    first = ["encoder.layers.1", *(f"encoder.layers.{n}.layers.1" for n in halving), f"encoder.layers.{layers - 1}"]
    growing = [shapes[f"decoder.blocks.{n}.proj.weight"][1] for n in range(len(halving), 0, -1)]
    base, channels = shapes["encoder.layers.0.weight"]
    colours, last = shapes["decoder.output_proj.weight"]
    return {
        "in_channels": channels, "out_channels": colours, "latent_channels": shapes["decoder.blocks.0.0.weight"][1],
        "encoder_block_out_channels": [base, *(step[0] for step in steps)], "decoder_block_out_channels": [last, *growing],
        "layers_per_block": [halving[0] - 1, *below, layers - 1 - halving[-1]],
        "temporal_expansions": [step[2] for step in steps], "spatial_expansions": [step[3] for step in steps],
        "add_attention_block": [f"{block}.attn_block.attn.qkv.weight" in shapes for block in first],
    }  # fmt: skip


LAYOUT = FileLayout(
    configs=Path(__file__).parent / "configs",
    transformer=PartKind("a Mochi diffusion model", _transformer, lambda config: keys.transformer(config["num_layers"])),
    vaes=(PartKind("a Mochi VAE", _vae, keys.vae, latent_channels),),
    encoders={"text_encoder": "t5"},
    tokenizers={"tokenizer": "text_encoders/t5_tokenizer"},
    agreements=(("transformer", "text_embed_dim", "text_encoder", "d_model"),),
)
