"""Names of HunyuanVideo-1.5's modules in diffusers and in ComfyUI (the original release's), which keeps query, key and value in one.

Source: the parameter names of diffusers' HunyuanVideo15Transformer3DModel and AutoencoderKLHunyuanVideo15 against
those of ComfyUI's classes, and those of the authors' model, which has no fused query, key and value but in its text refiner.
"""

from __future__ import annotations

import re

from ..key_map import KeyMap, Rule


def _embedder(ours: str, comfy: str) -> list[Rule]:
    return [Rule(f"{ours}.linear_1", f"{comfy}.in_layer"), Rule(f"{ours}.linear_2", f"{comfy}.out_layer")]


def _stream(comfy: str, context: str, projections: tuple[str, str, str], output: str, norms: tuple[str, str]) -> list[Rule]:
    """One of the two streams of a block: its query, key and value projections, their output, and the norms of query and key."""
    block, theirs = "transformer_blocks.*", f"double_blocks.*.{comfy}"
    q, k, v = (f"{block}.attn.{name}" for name in projections)
    return [
        Rule((q, k, v), f"{theirs}_attn.qkv"),
        Rule(f"{block}.attn.{output}", f"{theirs}_attn.proj"),
        Rule(f"{block}.attn.{norms[0]}", f"{theirs}_attn.norm.query_norm"),
        Rule(f"{block}.attn.{norms[1]}", f"{theirs}_attn.norm.key_norm"),
        Rule(f"{block}.norm1{context}.linear", f"{theirs}_mod.lin"),
        Rule(f"{block}.ff{context}.net.0.proj", f"{theirs}_mlp.0"),
        Rule(f"{block}.ff{context}.net.2", f"{theirs}_mlp.2"),
    ]


_REFINER, _COMFY_REFINER = "context_embedder.token_refiner.refiner_blocks.*", "txt_in.individual_token_refiner.blocks.*"
_RULES = (
    Rule("x_embedder.proj", "img_in.proj"),
    *_embedder("time_embed.timestep_embedder", "time_in"),
    Rule("cond_type_embed", "cond_type_embedding"),
    Rule("context_embedder.proj_in", "txt_in.input_embedder"),
    *_embedder("context_embedder.time_text_embed.timestep_embedder", "txt_in.t_embedder"),
    *_embedder("context_embedder.time_text_embed.text_embedder", "txt_in.c_embedder"),
    Rule((f"{_REFINER}.attn.to_q", f"{_REFINER}.attn.to_k", f"{_REFINER}.attn.to_v"), f"{_COMFY_REFINER}.self_attn.qkv"),
    Rule(f"{_REFINER}.attn.to_out.0", f"{_COMFY_REFINER}.self_attn.proj"),
    Rule(f"{_REFINER}.ff.net.0.proj", f"{_COMFY_REFINER}.mlp.0"),
    Rule(f"{_REFINER}.ff.net.2", f"{_COMFY_REFINER}.mlp.2"),
    Rule(f"{_REFINER}.norm_out.linear", f"{_COMFY_REFINER}.adaLN_modulation.1"),
    Rule(f"{_REFINER}.norm1", f"{_COMFY_REFINER}.norm1"),
    Rule(f"{_REFINER}.norm2", f"{_COMFY_REFINER}.norm2"),
    Rule("context_embedder_2.norm", "byt5_in.layernorm"),
    *(Rule(f"context_embedder_2.linear_{number}", f"byt5_in.fc{number}") for number in (1, 2, 3)),
    *(Rule(f"image_embedder.{ours}", f"vision_in.proj.{place}")
      for ours, place in {"norm_in": 0, "linear_1": 1, "linear_2": 3, "norm_out": 4}.items()),
    *_stream("img", "", ("to_q", "to_k", "to_v"), "to_out.0", ("norm_q", "norm_k")),
    *_stream("txt", "_context", ("add_q_proj", "add_k_proj", "add_v_proj"), "to_add_out", ("norm_added_q", "norm_added_k")),
    Rule("norm_out.linear", "final_layer.adaLN_modulation.1", swapped=True),  # scale before shift in diffusers
    Rule("proj_out", "final_layer.linear"),
)  # fmt: skip
_ORIGINAL = {  # what ComfyUI changed of the authors' names
    r"_attn\.(qkv|proj)$": r"_attn_\1",
    r"_attn\.norm\.query_norm$": "_attn_q_norm",
    r"_attn\.norm\.key_norm$": "_attn_k_norm",
    r"_mod\.lin$": "_mod.linear",
    r"mlp\.0$": "mlp.fc1",
    r"mlp\.2$": "mlp.fc2",
    r"(time_in|t_embedder)\.in_layer$": r"\1.mlp.0",
    r"(time_in|t_embedder)\.out_layer$": r"\1.mlp.2",
    r"c_embedder\.in_layer$": "c_embedder.linear_1",
    r"c_embedder\.out_layer$": "c_embedder.linear_2",
}


def _original(rule: Rule) -> list[Rule]:
    """A rule with the authors' names; ComfyUI's released files have these too, but with a block's query, key and value in one."""
    name = rule.comfy
    for pattern, replacement in _ORIGINAL.items():
        name = re.sub(pattern, replacement, name)
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
