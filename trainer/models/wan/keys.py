"""Names of Wan's tensors in diffusers and in ComfyUI (the original release's names), both ways.

Source: the parameter names of diffusers' WanTransformer3DModel and AutoencoderKLWan against those of the
released Wan 2.1 and 2.2 files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..key_map import KeyMap, Rule, below

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


_RESIDUAL = {"norm1": "residual.0", "conv1": "residual.2", "norm2": "residual.3", "conv2": "residual.6", "conv_shortcut": "shortcut"}
_SAMPLING = {"resample.1": "resample.1", "time_conv": "time_conv"}
_ATTENTION_BLOCK = {"norm": "norm", "to_qkv": "to_qkv", "proj": "proj"}


def vae_keys(config: Mapping[str, Any]) -> KeyMap:
    """Names of AutoencoderKLWan's modules; each stage has `num_res_blocks` residual blocks, in the decoder one more, then a resampler.

    Wan 2.1 counts the blocks of all stages through, in diffusers its encoder too; Wan 2.2 (`is_residual`) those of each stage.
    """
    blocks, stages = int(config["num_res_blocks"]), range(len(config["dim_mult"]))
    rules = [Rule("quant_conv", "conv1"), Rule("post_quant_conv", "conv2")]
    for coder in ("encoder", "decoder"):
        ends = {"conv_in": "conv1", "norm_out": "head.0", "conv_out": "head.2"}
        rules += below(f"{coder}.", f"{coder}.", ends)
        rules += below(f"{coder}.mid_block.resnets.0.", f"{coder}.middle.0.", _RESIDUAL)
        rules += below(f"{coder}.mid_block.attentions.0.", f"{coder}.middle.1.", _ATTENTION_BLOCK)
        rules += below(f"{coder}.mid_block.resnets.1.", f"{coder}.middle.2.", _RESIDUAL)
    if config.get("is_residual"):
        rules += below("encoder.down_blocks.*.resnets.*.", "encoder.downsamples.*.downsamples.*.", _RESIDUAL)
        rules += below("encoder.down_blocks.*.downsampler.", f"encoder.downsamples.*.downsamples.{blocks}.", _SAMPLING)
        rules += below("decoder.up_blocks.*.resnets.*.", "decoder.upsamples.*.upsamples.*.", _RESIDUAL)
        rules += below("decoder.up_blocks.*.upsampler.", f"decoder.upsamples.*.upsamples.{blocks + 1}.", _SAMPLING)
        return KeyMap(rules, prefix="")
    rules += below("encoder.down_blocks.*.", "encoder.downsamples.*.", {**_RESIDUAL, **_SAMPLING})
    for stage in stages:
        first = stage * (blocks + 2)
        for block in range(blocks + 1):
            rules += below(f"decoder.up_blocks.{stage}.resnets.{block}.", f"decoder.upsamples.{first + block}.", _RESIDUAL)
        rules += below(f"decoder.up_blocks.{stage}.upsamplers.0.", f"decoder.upsamples.{first + blocks + 1}.", _SAMPLING)
    return KeyMap(rules, prefix="")
