"""Names of HunyuanVideo's modules in diffusers and in ComfyUI, which keeps query, key, value and more in one.

Source: the parameter names of diffusers' HunyuanVideoTransformer3DModel against those of ComfyUI's model.
"""

from __future__ import annotations

import re

from ..key_map import KeyMap, Rule


def embedder(ours: str, comfy: str) -> list[Rule]:
    """The two layers of an embedding."""
    return [Rule(f"{ours}.linear_1", f"{comfy}.in_layer"), Rule(f"{ours}.linear_2", f"{comfy}.out_layer")]


def _stream(comfy: str, attention: dict[str, str], norm: str, feed_forward: str) -> list[Rule]:
    """One of the two streams of a double block; `attention` names query, key, value, output and the norms of query and key."""
    ours, theirs = "transformer_blocks.*", f"double_blocks.*.{comfy}"
    parts = {name: f"{ours}.attn.{module}" for name, module in attention.items()}
    return [
        Rule((parts["q"], parts["k"], parts["v"]), f"{theirs}_attn.qkv"),
        Rule(parts["out"], f"{theirs}_attn.proj"),
        Rule(parts["norm_q"], f"{theirs}_attn.norm.query_norm"),
        Rule(parts["norm_k"], f"{theirs}_attn.norm.key_norm"),
        Rule(f"{ours}.{norm}.linear", f"{theirs}_mod.lin"),
        Rule(f"{ours}.{feed_forward}.net.0.proj", f"{theirs}_mlp.0"),
        Rule(f"{ours}.{feed_forward}.net.2", f"{theirs}_mlp.2"),
    ]


_IMAGE = {"q": "to_q", "k": "to_k", "v": "to_v", "out": "to_out.0", "norm_q": "norm_q", "norm_k": "norm_k"}
_TEXT = {
    "q": "add_q_proj", "k": "add_k_proj", "v": "add_v_proj", "out": "to_add_out", "norm_q": "norm_added_q", "norm_k": "norm_added_k",
}  # fmt: skip
_REFINER, _COMFY_REFINER = "context_embedder.token_refiner.refiner_blocks.*", "txt_in.individual_token_refiner.blocks.*"
_SINGLE = "single_transformer_blocks.*"
ENDS = (
    Rule("x_embedder.proj", "img_in.proj"),
    Rule("norm_out.linear", "final_layer.adaLN_modulation.1", swapped=True),  # scale before shift in diffusers
    Rule("proj_out", "final_layer.linear"),
)
CONTEXT = (
    Rule("context_embedder.proj_in", "txt_in.input_embedder"),
    *embedder("context_embedder.time_text_embed.timestep_embedder", "txt_in.t_embedder"),
    *embedder("context_embedder.time_text_embed.text_embedder", "txt_in.c_embedder"),
    Rule((f"{_REFINER}.attn.to_q", f"{_REFINER}.attn.to_k", f"{_REFINER}.attn.to_v"), f"{_COMFY_REFINER}.self_attn.qkv"),
    Rule(f"{_REFINER}.attn.to_out.0", f"{_COMFY_REFINER}.self_attn.proj"),
    Rule(f"{_REFINER}.ff.net.0.proj", f"{_COMFY_REFINER}.mlp.0"),
    Rule(f"{_REFINER}.ff.net.2", f"{_COMFY_REFINER}.mlp.2"),
    Rule(f"{_REFINER}.norm_out.linear", f"{_COMFY_REFINER}.adaLN_modulation.1"),
    Rule(f"{_REFINER}.norm1", f"{_COMFY_REFINER}.norm1"),
    Rule(f"{_REFINER}.norm2", f"{_COMFY_REFINER}.norm2"),
)
DOUBLE_BLOCKS = (*_stream("img", _IMAGE, "norm1", "ff"), *_stream("txt", _TEXT, "norm1_context", "ff_context"))
RULES = (
    *ENDS,
    *embedder("time_text_embed.timestep_embedder", "time_in"),
    *embedder("time_text_embed.text_embedder", "vector_in"),
    *embedder("time_text_embed.guidance_embedder", "guidance_in"),
    *CONTEXT,
    *DOUBLE_BLOCKS,
    Rule((f"{_SINGLE}.attn.to_q", f"{_SINGLE}.attn.to_k", f"{_SINGLE}.attn.to_v", f"{_SINGLE}.proj_mlp"), "single_blocks.*.linear1"),
    Rule(f"{_SINGLE}.proj_out", "single_blocks.*.linear2"),
    Rule(f"{_SINGLE}.attn.norm_q", "single_blocks.*.norm.query_norm"),
    Rule(f"{_SINGLE}.attn.norm_k", "single_blocks.*.norm.key_norm"),
    Rule(f"{_SINGLE}.norm.linear", "single_blocks.*.modulation.lin"),
)
_ORIGINAL = {  # what ComfyUI changed of the original release's names
    r"_attn\.(qkv|proj)$": r"_attn_\1",
    r"_mod\.lin$": "_mod.linear",
    r"(_|\.)mlp\.0$": r"\1mlp.fc1",
    r"(_|\.)mlp\.2$": r"\1mlp.fc2",
    r"\.modulation\.lin$": ".modulation.linear",
    r"_attn\.norm\.query_norm$": "_attn_q_norm",
    r"_attn\.norm\.key_norm$": "_attn_k_norm",
    r"\*\.norm\.query_norm$": "*.q_norm",
    r"\*\.norm\.key_norm$": "*.k_norm",
    r"^(time_in|guidance_in|txt_in\.t_embedder)\.in_layer$": r"\1.mlp.0",
    r"^(time_in|guidance_in|txt_in\.t_embedder)\.out_layer$": r"\1.mlp.2",
    r"^txt_in\.c_embedder\.in_layer$": "txt_in.c_embedder.linear_1",
    r"^txt_in\.c_embedder\.out_layer$": "txt_in.c_embedder.linear_2",
}


def original(rule: Rule) -> Rule:
    """A rule with the module's name in the original release, which most model files and LoRA of diffusion-pipe and musubi-tuner use."""
    name = rule.comfy
    for pattern, replacement in _ORIGINAL.items():
        name = re.sub(pattern, replacement, name)
    return Rule(rule.diffusers, name, rule.swapped)


TRANSFORMER = KeyMap(RULES, original=[original(rule) for rule in RULES])
_OLDER = [  # of ComfyUI's own, before its norms had weights
    Rule(f"{module}.weight", f"{rule.comfy}.scale")
    for rule in RULES
    for module in rule.modules
    if rule.comfy.endswith(("query_norm", "key_norm"))
]
FILE = KeyMap((*TRANSFORMER.original.rules, *_OLDER))  # all names that model files use
