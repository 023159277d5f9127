"""CogVideoX's single files: how they are told from their headers, and what is read there.

Their transformers have ComfyUI's names, or diffusers' as in files for ComfyUI-CogVideoXWrapper. The VAE's are the same in both.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

from ..key_map import KeyMap, Rule
from ..layout import Config, FileLayout, PartKind, Told, latent_channels
from ..shapes import Shapes
from . import keys
from .variants import TRANSFORMER

HEAD_SIZE = 64  # of all releases
CHANNELS = 16  # of the latents of all releases
TABLE = "patch_embed.pos_embedding"
NAMES = {  # in ComfyUI and in diffusers: the blocks, a layer of the first, the time's embedding, the offset's
    "blocks.*.": ("blocks.0.ff_proj.weight", "time_embedding_linear_2.weight", "ofs_embedding_linear_2.weight"),
    "transformer_blocks.*.": (
        "transformer_blocks.0.ff.net.0.proj.weight", "time_embedding.linear_2.weight", "ofs_embedding.linear_2.weight",
    ),
}  # fmt: skip
FILES = KeyMap([*keys.TRANSFORMER.rules, *(Rule(name, name) for rule in keys.TRANSFORMER.rules for name in rule.modules)])


def _transformer(shapes: Shapes) -> Told | None:
    """The configuration of CogVideoXTransformer3DModel.

    Of models from text those with a table add positions and the others rotate by them, as ComfyUI tells them apart; the
    files in diffusers' names have learned tables only, so that these are told by their size.
    """
    blocks = next((blocks for blocks, names in NAMES.items() if {*names[:2], "patch_embed.text_proj.weight"} <= shapes.keys()), "")
    if not blocks:
        return None
    _, time, offset = NAMES[blocks]
    (width, text), patch, table = shapes["patch_embed.text_proj.weight"], shapes["patch_embed.proj.weight"], TABLE in shapes
    paired = len(patch) == 2  # a linear layer over two by two patches of two frames
    channels = patch[1] // 8 if paired else patch[1]
    if channels not in (CHANNELS, 2 * CHANNELS):
        return Told(unsupported=f"with {channels} input channels, as inpainting models have")
    pictures = channels > CHANNELS
    if pictures and not (table or paired):
        return Told(unsupported=f"with {channels} input channels and no table of positions, as control models have")
    values: dict[str, Any] = {
        "num_layers": shapes.count(blocks), "num_attention_heads": max(width // HEAD_SIZE, 1), "text_embed_dim": text,
        "in_channels": channels, "patch_size": 2 if paired else patch[2], "patch_size_t": 2 if paired else None,
        "time_embed_dim": shapes[time][0], "ofs_embed_dim": shapes[offset][0] if offset in shapes else None,
        "use_learned_positional_embeddings": table and pictures,
    }  # fmt: skip
    if table or blocks == "blocks.*.":
        values["use_rotary_positional_embeddings"] = pictures or not table
    return Told(values)


def _inputs(config: Config) -> Hashable:
    """What the model is given beside the noise, and how it is told where."""
    names = ("in_channels", "patch_size_t", "use_rotary_positional_embeddings", "use_learned_positional_embeddings")
    made = TRANSFORMER | dict(config)
    return *(made[name] for name in names), made["ofs_embed_dim"] is not None


def _vae(shapes: Shapes) -> Told | None:
    """The configuration of AutoencoderKLCogVideoX, but for its scaling factor, which differs between releases."""
    if not {"encoder.conv_in.conv.weight", "decoder.mid_block.resnets.0.norm1.norm_layer.weight"} <= shapes.keys():
        return None
    stages = range(shapes.count("encoder.down_blocks.*."))
    return Told({
        "in_channels": shapes["encoder.conv_in.conv.weight"][1], "out_channels": shapes["decoder.conv_out.conv.weight"][0],
        "latent_channels": shapes["decoder.conv_in.conv.weight"][1],
        "block_out_channels": [shapes[f"encoder.down_blocks.{stage}.resnets.0.conv1.conv.weight"][0] for stage in stages],
        "layers_per_block": shapes.count("encoder.down_blocks.0.resnets.*."),
    })  # fmt: skip


LAYOUT = FileLayout(
    configs=Path(__file__).parent / "configs",
    transformer=PartKind("a CogVideoX diffusion model", _transformer, lambda _: FILES, _inputs, computed=(TABLE,)),
    vaes=(PartKind("a CogVideoX VAE", _vae, None, latent_channels),),
    encoders={"text_encoder": "t5"},
    tokenizers={"tokenizer": "text_encoders/t5_tokenizer"},
    agreements=(("transformer", "text_embed_dim", "text_encoder", "d_model"),),
)
