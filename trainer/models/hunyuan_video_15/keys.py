"""Names of HunyuanVideo-1.5's modules in diffusers and in ComfyUI (the original release's), which keeps query, key and value in one.

Source: the parameter names of diffusers' HunyuanVideo15Transformer3DModel and AutoencoderKLHunyuanVideo15 against
those of ComfyUI's classes, and those of the authors' model, which has no fused query, key and value but in its text refiner.
"""

from __future__ import annotations

from ..hunyuan_video.keys import CONTEXT, DOUBLE_BLOCKS, ENDS, embedder, original
from ..key_map import KeyMap, Rule

_RULES = (
    *ENDS,
    *embedder("time_embed.timestep_embedder", "time_in"),
    Rule("cond_type_embed", "cond_type_embedding"),
    *CONTEXT,
    Rule("context_embedder_2.norm", "byt5_in.layernorm"),
    *(Rule(f"context_embedder_2.linear_{number}", f"byt5_in.fc{number}") for number in (1, 2, 3)),
    *(Rule(f"image_embedder.{ours}", f"vision_in.proj.{place}")
      for ours, place in {"norm_in": 0, "linear_1": 1, "linear_2": 3, "norm_out": 4}.items()),
    *DOUBLE_BLOCKS,
)  # fmt: skip


def _original(rule: Rule) -> list[Rule]:
    """A rule with the authors' names; ComfyUI's released files have these too, but with a block's query, key and value in one."""
    name = original(rule).comfy
    apart = rule.modules if name.startswith("double_blocks") and name.endswith("_attn_qkv") else ()
    return [
        *(Rule(module, name.replace("_qkv", f"_{own}")) for module, own in zip(apart, "qkv", strict=False)),
        Rule(rule.diffusers, name, rule.swapped),
    ]


TRANSFORMER = KeyMap(_RULES, original=[made for rule in _RULES for made in _original(rule)])


def _resnet(ours: str, comfy: str) -> list[Rule]:
    """A residual block of the VAE; its norms are of one parameter."""
    same = [Rule(f"{ours}.{name}", f"{comfy}.{name}") for name in ("norm1", "norm2", "conv1.conv", "conv2.conv")]
    return [*same, Rule(f"{ours}.conv_shortcut", f"{comfy}.nin_shortcut.conv")]


def _half(ours: str, direction: str) -> list[Rule]:
    """The VAE's encoder (down) or decoder (up)."""
    middle = [
        *_resnet(f"{ours}.mid_block.resnets.0", f"{ours}.mid.block_1"),
        *_resnet(f"{ours}.mid_block.resnets.1", f"{ours}.mid.block_2"),
    ]
    attention = {"norm": "norm", "to_q": "q", "to_k": "k", "to_v": "v", "proj_out": "proj_out"}
    stage, comfy = f"{ours}.{direction}_blocks.*", f"{ours}.{direction}.*"
    return [
        *(Rule(f"{ours}.{name}", f"{ours}.{name}") for name in ("conv_in.conv", "norm_out", "conv_out.conv")),
        *middle,
        *(Rule(f"{ours}.mid_block.attentions.0.{name}", f"{ours}.mid.attn_1.{short}") for name, short in attention.items()),
        *_resnet(f"{stage}.resnets.*", f"{comfy}.block.*"),
        Rule(f"{stage}.{direction}samplers.0.conv.conv", f"{comfy}.{direction}sample.conv.conv"),
    ]


VAE = KeyMap([*_half("encoder", "down"), *_half("decoder", "up")], prefix="")
