"""Names of Wan's tensors in diffusers and in ComfyUI (the original release's names), both ways.

Source: the parameter names of diffusers' WanTransformer3DModel and AutoencoderKLWan against those of the
released Wan 2.1 files.
"""

from __future__ import annotations

import re

from ..key_map import KeyMap, Rule

_ATTENTION = {
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
TRANSFORMER = KeyMap([
    Rule("condition_embedder.time_embedder.linear_1", "time_embedding.0"),
    Rule("condition_embedder.time_embedder.linear_2", "time_embedding.2"),
    Rule("condition_embedder.text_embedder.linear_1", "text_embedding.0"),
    Rule("condition_embedder.text_embedder.linear_2", "text_embedding.2"),
    Rule("condition_embedder.time_proj", "time_projection.1"),
    Rule("condition_embedder.image_embedder.norm1", "img_emb.proj.0"),
    Rule("condition_embedder.image_embedder.ff.net.0.proj", "img_emb.proj.1"),
    Rule("condition_embedder.image_embedder.ff.net.2", "img_emb.proj.3"),
    Rule("condition_embedder.image_embedder.norm2", "img_emb.proj.4"),
    Rule("condition_embedder.image_embedder.pos_embed", "img_emb.emb_pos"),
    Rule("patch_embedding", "patch_embedding"),
    Rule("proj_out", "head.head"),
    Rule("scale_shift_table", "head.modulation"),
    Rule("blocks.*.scale_shift_table", "blocks.*.modulation"),
    *(Rule(f"blocks.*.attn1.{ours}", f"blocks.*.self_attn.{comfy}") for ours, comfy in _ATTENTION.items()),
    *(Rule(f"blocks.*.attn2.{ours}", f"blocks.*.cross_attn.{comfy}") for ours, comfy in _ATTENTION.items()),
    Rule("blocks.*.ffn.net.0.proj", "blocks.*.ffn.0"),
    Rule("blocks.*.ffn.net.2", "blocks.*.ffn.2"),
    Rule("blocks.*.norm2", "blocks.*.norm3"),  # the release numbers the cross-attention norm last
])  # fmt: skip


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
