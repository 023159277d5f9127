"""Names of LTX-Video's tensors in diffusers and in ComfyUI (the original release's names), both ways.

Source: the parameter names of diffusers' LTXVideoTransformer3DModel against those of the released files.
"""

from __future__ import annotations

from ..key_map import KeyMap, Rule

_RENAMED = {
    "proj_in": "patchify_proj",
    "time_embed.emb.timestep_embedder.linear_1": "adaln_single.emb.timestep_embedder.linear_1",
    "time_embed.emb.timestep_embedder.linear_2": "adaln_single.emb.timestep_embedder.linear_2",
    "time_embed.linear": "adaln_single.linear",
    **{f"transformer_blocks.*.{attention}.norm_{part}": f"transformer_blocks.*.{attention}.{part}_norm"
       for attention in ("attn1", "attn2") for part in "qk"},
}  # fmt: skip
_SAME = [
    "caption_projection.linear_1",
    "caption_projection.linear_2",
    "scale_shift_table",
    "proj_out",
    "transformer_blocks.*.scale_shift_table",
    *(f"transformer_blocks.*.{attention}.{layer}" for attention in ("attn1", "attn2") for layer in ("to_q", "to_k", "to_v", "to_out.0")),
    "transformer_blocks.*.ff.net.0.proj",
    "transformer_blocks.*.ff.net.2",
]
TRANSFORMER = KeyMap([Rule(ours, comfy) for ours, comfy in _RENAMED.items()] + [Rule(name, name) for name in _SAME])
