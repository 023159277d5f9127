"""Names of Wan's tensors in diffusers and in ComfyUI (the original release's names), both ways.

Source: the parameter names of diffusers' WanTransformer3DModel and AutoencoderKLWan against those of the
released Wan 2.1 files.
"""

from __future__ import annotations

import re

TOP_LEVEL = {
    "condition_embedder.time_embedder.linear_1": "time_embedding.0",
    "condition_embedder.time_embedder.linear_2": "time_embedding.2",
    "condition_embedder.text_embedder.linear_1": "text_embedding.0",
    "condition_embedder.text_embedder.linear_2": "text_embedding.2",
    "condition_embedder.time_proj": "time_projection.1",
    "patch_embedding": "patch_embedding",
    "proj_out": "head.head",
}
IN_BLOCK = {
    "attn1": "self_attn",
    "attn2": "cross_attn",
    "ffn.net.0.proj": "ffn.0",
    "ffn.net.2": "ffn.2",
    "norm2": "norm3",  # the release numbers the cross-attention norm last
    "norm3": "norm2",
}
IN_ATTENTION = {
    "to_q": "q",
    "to_k": "k",
    "to_v": "v",
    "to_out.0": "o",
    "norm_q": "norm_q",
    "norm_k": "norm_k",
    "add_k_proj": "k_img",
    "add_v_proj": "v_img",
    "norm_added_k": "norm_k_img",
}
_TO_DIFFUSERS_TOP = {comfy: ours for ours, comfy in TOP_LEVEL.items()}
_TO_DIFFUSERS_BLOCK = {comfy: ours for ours, comfy in IN_BLOCK.items()}
_TO_DIFFUSERS_ATTENTION = {comfy: ours for ours, comfy in IN_ATTENTION.items()}


def _rename(module: str, top: dict[str, str], block: dict[str, str], attention: dict[str, str]) -> str:
    if module in top:
        return top[module]
    match = re.fullmatch(r"(blocks\.\d+)\.(.+)", module)
    if match is None:
        raise KeyError(module)
    prefix, inner = match.groups()
    if inner in block:
        return f"{prefix}.{block[inner]}"
    part, _, layer = inner.partition(".")
    return f"{prefix}.{block[part]}.{attention[layer]}"


def to_comfy(module: str) -> str:
    """ComfyUI's name of a diffusers module of the transformer; raises KeyError if it has none."""
    return _rename(module, TOP_LEVEL, IN_BLOCK, IN_ATTENTION)


def to_diffusers(module: str) -> str:
    """The diffusers name of a ComfyUI module of the transformer; raises KeyError if it has none."""
    return _rename(module, _TO_DIFFUSERS_TOP, _TO_DIFFUSERS_BLOCK, _TO_DIFFUSERS_ATTENTION)


def transformer_tensor_to_comfy(name: str) -> str:
    """ComfyUI's name of a tensor of the transformer."""
    module, _, parameter = name.rpartition(".")
    if parameter == "scale_shift_table":
        return f"{module}.modulation" if module else "head.modulation"
    return f"{to_comfy(module)}.{parameter}"


_VAE_RULES = [
    (r"^quant_conv\.", "conv1."),
    (r"^post_quant_conv\.", "conv2."),
    (r"\.conv_in\.", ".conv1."),
    (r"\.norm_out\.", ".head.0."),
    (r"\.conv_out\.", ".head.2."),
    (r"\.mid_block\.resnets\.0\.", ".middle.0."),
    (r"\.mid_block\.attentions\.0\.", ".middle.1."),
    (r"\.mid_block\.resnets\.1\.", ".middle.2."),
    (r"^encoder\.down_blocks\.", "encoder.downsamples."),
]
_RESIDUAL = {"norm1": "residual.0", "conv1": "residual.2", "norm2": "residual.3", "conv2": "residual.6", "conv_shortcut": "shortcut"}


def vae_tensor_to_comfy(name: str) -> str:
    """ComfyUI's name of a tensor of the VAE (three residual blocks and an upsampler in each decoder stage)."""
    in_block = re.match(r"(en|de)coder\.(mid_block|down_blocks|up_blocks)\.", name)
    for pattern, replacement in _VAE_RULES:
        name = re.sub(pattern, replacement, name)
    name = re.sub(
        r"decoder\.up_blocks\.(\d+)\.(resnets|upsamplers)\.(\d+)\.",
        lambda m: f"decoder.upsamples.{4 * int(m[1]) + (int(m[3]) if m[2] == 'resnets' else 3)}.",
        name,
    )
    if in_block:
        name = re.sub(r"\.(norm1|conv1|norm2|conv2|conv_shortcut)\.", lambda m: f".{_RESIDUAL[m[1]]}.", name)
    return name
