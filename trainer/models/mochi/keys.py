"""Names of Mochi's modules in diffusers and in ComfyUI (the original release's names), both ways.

Source: the parameter names of diffusers' MochiTransformer3DModel and AutoencoderKLMochi against those of ComfyUI's
classes. The original computes gate and value of a feed-forward, and scale and shift of the last norm, in the other order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..key_map import KeyMap, Rule

_BLOCK: dict[str | tuple[str, ...], str] = {
    "norm1.linear": "mod_x",
    ("attn1.to_q", "attn1.to_k", "attn1.to_v"): "attn.qkv_x",
    ("attn1.add_q_proj", "attn1.add_k_proj", "attn1.add_v_proj"): "attn.qkv_y",
    "attn1.norm_q": "attn.q_norm_x",
    "attn1.norm_k": "attn.k_norm_x",
    "attn1.norm_added_q": "attn.q_norm_y",
    "attn1.norm_added_k": "attn.k_norm_y",
    "attn1.to_out.0": "attn.proj_x",
    "attn1.to_add_out": "attn.proj_y",
    "ff.net.0.proj": "mlp_x.w1",
    "ff.net.2": "mlp_x.w2",
    "ff_context.net.0.proj": "mlp_y.w1",
    "ff_context.net.2": "mlp_y.w2",
}
_AROUND = {
    "patch_embed.proj": "x_embedder.proj",
    "pos_frequencies": "pos_frequencies",
    "time_embed.timestep_embedder.linear_1": "t_embedder.mlp.0",
    "time_embed.timestep_embedder.linear_2": "t_embedder.mlp.2",
    "time_embed.pooler.to_kv": "t5_y_embedder.to_kv",
    "time_embed.pooler.to_q": "t5_y_embedder.to_q",
    "time_embed.pooler.to_out": "t5_y_embedder.to_out",
    "time_embed.caption_proj": "t5_yproj",
    "proj_out": "final_layer.linear",
}
_SWAPPED = ("mlp_x.w1", "mlp_y.w1")
_RESIDUAL = {
    "resnets.{}.norm1.norm_layer": "stack.0",
    "resnets.{}.conv1.conv": "stack.2",
    "resnets.{}.norm2.norm_layer": "stack.3",
    "resnets.{}.conv2.conv": "stack.5",
    "norms.{}.norm_layer": "attn_block.norm",
    "attentions.{}.to_out.0": "attn_block.attn.out",
}


def transformer(layers: int) -> KeyMap:
    """The transformer's names; the last of its blocks has another norm of the text, so that each has a rule for its own."""
    contexts = [f"transformer_blocks.{block}.norm1_context.linear" for block in range(layers)]
    contexts[-1] += "_1"
    return KeyMap(
        [
            *(Rule(context, f"blocks.{block}.mod_y") for block, context in enumerate(contexts)),
            *(Rule(_in_block(ours), f"blocks.*.{comfy}", swapped=comfy in _SWAPPED) for ours, comfy in _BLOCK.items()),
            *(Rule(ours, comfy) for ours, comfy in _AROUND.items()),
            Rule("norm_out.linear", "final_layer.mod", swapped=True),
        ]
    )


def _in_block(modules: str | tuple[str, ...]) -> str | tuple[str, ...]:
    if isinstance(modules, str):
        return f"transformer_blocks.*.{modules}"
    return tuple(f"transformer_blocks.*.{module}" for module in modules)


def vae(config: Mapping[str, Any]) -> KeyMap:
    """The VAE's names by its configuration: the original numbers all its blocks through."""
    counts, stages = config["layers_per_block"], len(config["encoder_block_out_channels"]) - 1
    rules = [
        Rule("encoder.proj_in", "encoder.layers.0"),
        Rule("encoder.norm_out.norm_layer", "encoder.output_norm"),
        Rule("encoder.proj_out", "encoder.output_proj"),
        Rule("decoder.conv_in", "decoder.blocks.0.0"),
        Rule("decoder.proj_out", "decoder.output_proj"),
    ]
    for number in range(counts[0]):
        rules += _residual("encoder.block_in", number, f"encoder.layers.{1 + number}")
        rules += _residual("decoder.block_out", number, f"decoder.blocks.{1 + stages}.{number}")
    for number in range(counts[-1]):
        rules += _residual("encoder.block_out", number, f"encoder.layers.{1 + counts[0] + stages + number}")
        rules += _residual("decoder.block_in", number, f"decoder.blocks.0.{1 + number}")
    for stage in range(stages):
        down, up = f"encoder.layers.{1 + counts[0] + stage}.layers", f"decoder.blocks.{1 + stage}"
        rules.append(Rule(f"encoder.down_blocks.{stage}.conv_in.conv", f"{down}.0"))
        rules.append(Rule(f"decoder.up_blocks.{stage}.proj", f"{up}.proj"))
        for number in range(counts[stage + 1]):
            rules += _residual(f"encoder.down_blocks.{stage}", number, f"{down}.{1 + number}")
        for number in range(counts[-stage - 2]):
            rules += _residual(f"decoder.up_blocks.{stage}", number, f"{up}.blocks.{number}")
    return KeyMap(rules, prefix="")


def _residual(block: str, number: int, comfy: str) -> list[Rule]:
    """The rules of one residual block and the attention that may follow it."""
    attention = f"{block}.attentions.{number}"
    rules = [Rule(f"{block}.{ours.format(number)}", f"{comfy}.{theirs}") for ours, theirs in _RESIDUAL.items()]
    return [*rules, Rule((f"{attention}.to_q", f"{attention}.to_k", f"{attention}.to_v"), f"{comfy}.attn_block.attn.qkv")]
