"""Names of the VAE's modules in single files: diffusers' own, which the original release has too, or those of ComfyUI's class.

Source: the parameter names of diffusers' AutoencoderKLHunyuanVideo against those of the model that ComfyUI loads it into.
"""

from __future__ import annotations

from ..key_map import KeyMap, Rule
from ..layout import Config

_RESIDUAL = {name: name for name in ("norm1", "conv1.conv", "norm2", "conv2.conv")} | {"conv_shortcut.conv": "nin_shortcut.conv"}
_ATTENTION = {"group_norm": "norm", "to_q": "q", "to_k": "k", "to_v": "v", "to_out.0": "proj_out"}
_ENDS = {"conv_in.conv": "conv_in.conv", "conv_norm_out": "norm_out", "conv_out.conv": "conv_out.conv"}


def vae_keys(config: Config) -> KeyMap:
    """Both names of each module; ComfyUI counts the decoder's stages backwards."""
    stages = len(config["block_out_channels"])
    rules = [Rule("quant_conv", "quant_conv"), Rule("post_quant_conv", "post_quant_conv")]
    for coder in ("encoder.", "decoder."):
        rules += _below(coder, coder, _ENDS)
        rules += _below(f"{coder}mid_block.resnets.0.", f"{coder}mid.block_1.", _RESIDUAL)
        rules += _below(f"{coder}mid_block.attentions.0.", f"{coder}mid.attn_1.", _ATTENTION)
        rules += _below(f"{coder}mid_block.resnets.1.", f"{coder}mid.block_2.", _RESIDUAL)
    rules += _below("encoder.down_blocks.*.resnets.*.", "encoder.down.*.block.*.", _RESIDUAL)
    rules += _below("encoder.down_blocks.*.downsamplers.0.", "encoder.down.*.downsample.", {"conv.conv": "conv.conv"})
    for stage in range(stages):
        ours, theirs = f"decoder.up_blocks.{stage}.", f"decoder.up.{stages - 1 - stage}."
        rules += _below(f"{ours}resnets.*.", f"{theirs}block.*.", _RESIDUAL)
        rules += _below(f"{ours}upsamplers.0.", f"{theirs}upsample.", {"conv.conv": "conv.conv"})
    own = [Rule(module, module) for rule in rules for module in rule.modules]
    return KeyMap([*own, *rules], prefix="")


def _below(ours: str, theirs: str, names: dict[str, str]) -> list[Rule]:
    return [Rule(ours + own, theirs + other) for own, other in names.items()]
