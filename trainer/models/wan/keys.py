"""Names of Wan's tensors in diffusers and in ComfyUI (the original release's names), both ways.

Source: the parameter names of diffusers' WanTransformer3DModel and AutoencoderKLWan against those of the
released Wan 2.1 and 2.2 files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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


_RESNET = {
    "norm1.gamma": "residual.0.gamma",
    "conv1": "residual.2",
    "norm2.gamma": "residual.3.gamma",
    "conv2": "residual.6",
    "conv_shortcut": "shortcut",
}
_SAMPLER = ("resample.1", "time_conv")  # of a stage's last block, which changes the size
_STAGES, _RESNETS = 4, 2  # dim_mult and num_res_blocks of the released VAEs; a decoder's stage has one resnet more


def _vae_rules(residual: bool) -> Iterator[Rule]:
    """Rules of one kind of VAE: those of 2.2 keep a stage's blocks in the stage, those of 2.1 count all blocks of a side."""
    yield Rule("quant_conv", "conv1")
    yield Rule("post_quant_conv", "conv2")
    for side in ("encoder", "decoder"):
        yield Rule(f"{side}.conv_in", f"{side}.conv1")
        yield Rule(f"{side}.conv_out", f"{side}.head.2")
        yield Rule(f"{side}.norm_out.gamma", f"{side}.head.0.gamma")
        yield Rule(f"{side}.mid_block.attentions.0.norm.gamma", f"{side}.middle.1.norm.gamma")
        for name in ("to_qkv", "proj"):
            yield Rule(f"{side}.mid_block.attentions.0.{name}", f"{side}.middle.1.{name}")
        for ours, comfy in _RESNET.items():
            for number, place in ((0, 0), (1, 2)):
                yield Rule(f"{side}.mid_block.resnets.{number}.{ours}", f"{side}.middle.{place}.{comfy}")
    if residual:
        yield from _stages("encoder.down_blocks.*.resnets.*", "encoder.downsamples.*.downsamples.*", _RESNET)
        yield from _stages("decoder.up_blocks.*.resnets.*", "decoder.upsamples.*.upsamples.*", _RESNET)
        for name in _SAMPLER:
            yield Rule(f"encoder.down_blocks.*.downsampler.{name}", f"encoder.downsamples.*.downsamples.{_RESNETS}.{name}")
            yield Rule(f"decoder.up_blocks.*.upsampler.{name}", f"decoder.upsamples.*.upsamples.{_RESNETS + 1}.{name}")
        return
    yield from _stages("encoder.down_blocks.*", "encoder.downsamples.*", {**_RESNET, **{name: name for name in _SAMPLER}})
    for stage in range(_STAGES):
        first = stage * (_RESNETS + 2)
        for number in range(_RESNETS + 1):
            yield from _stages(f"decoder.up_blocks.{stage}.resnets.{number}", f"decoder.upsamples.{first + number}", _RESNET)
        for name in _SAMPLER:
            yield Rule(f"decoder.up_blocks.{stage}.upsamplers.0.{name}", f"decoder.upsamples.{first + _RESNETS + 1}.{name}")


def _stages(ours: str, comfy: str, inside: Mapping[str, str]) -> Iterator[Rule]:
    return (Rule(f"{ours}.{a}", f"{comfy}.{b}") for a, b in inside.items())


VAE_21, VAE_22 = KeyMap(list(_vae_rules(residual=False)), prefix=""), KeyMap(list(_vae_rules(residual=True)), prefix="")
