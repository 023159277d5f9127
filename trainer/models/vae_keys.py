"""Names of the modules of VAEs that are built as Stable Diffusion's, in diffusers and in single files.

Source: the parameter names of diffusers' AutoencoderKL and AutoencoderKLHunyuanVideo against those of the models that
ComfyUI loads them into.
"""

from __future__ import annotations

from .key_map import Rule, below

_ATTENTION = {"group_norm": "norm", "to_q": "q", "to_k": "k", "to_v": "v", "to_out.0": "proj_out"}


def vae_rules(stages: int, inner: str = "") -> list[Rule]:
    """All modules between pixels and latents; single files count the decoder's stages backwards.

    `inner` is what stands behind the names of convolutions, such as ".conv" where each is wrapped.
    """
    renamed = {"conv1": "conv1", "conv2": "conv2", "conv_shortcut": "nin_shortcut"}
    residual = {"norm1": "norm1", "norm2": "norm2"} | {f"{ours}{inner}": f"{theirs}{inner}" for ours, theirs in renamed.items()}
    ends = {f"conv_in{inner}": f"conv_in{inner}", "conv_norm_out": "norm_out", f"conv_out{inner}": f"conv_out{inner}"}
    sampler = {f"conv{inner}": f"conv{inner}"}
    rules = list[Rule]()
    for half in ("encoder.", "decoder."):
        rules += below(half, half, ends)
        rules += below(f"{half}mid_block.attentions.0.", f"{half}mid.attn_1.", _ATTENTION)
        for number in (0, 1):
            rules += below(f"{half}mid_block.resnets.{number}.", f"{half}mid.block_{number + 1}.", residual)
    rules += below("encoder.down_blocks.*.resnets.*.", "encoder.down.*.block.*.", residual)
    rules += below("encoder.down_blocks.*.downsamplers.0.", "encoder.down.*.downsample.", sampler)
    for stage in range(stages):
        ours, theirs = f"decoder.up_blocks.{stage}.", f"decoder.up.{stages - 1 - stage}."
        rules += below(f"{ours}resnets.*.", f"{theirs}block.*.", residual)
        rules += below(f"{ours}upsamplers.0.", f"{theirs}upsample.", sampler)
    return rules
