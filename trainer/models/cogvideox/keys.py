"""Names of CogVideoX's modules in diffusers and in ComfyUI, both ways.

Source: the parameter names of diffusers' CogVideoXTransformer3DModel against those of ComfyUI's own class. The VAE's
are the same in both.
"""

from __future__ import annotations

from ..key_map import KeyMap, Rule

_BLOCK = {
    "norm1.linear": "norm1.linear",
    "norm1.norm": "norm1.norm",
    "attn1.to_q": "q",
    "attn1.to_k": "k",
    "attn1.to_v": "v",
    "attn1.norm_q": "norm_q",
    "attn1.norm_k": "norm_k",
    "attn1.to_out.0": "attn_out",
    "norm2.linear": "norm2.linear",
    "norm2.norm": "norm2.norm",
    "ff.net.0.proj": "ff_proj",
    "ff.net.2": "ff_out",
}
_SAME = (
    "patch_embed.proj", "patch_embed.text_proj", "patch_embed.pos_embedding",
    "norm_final", "norm_out.linear", "norm_out.norm", "proj_out",
)  # fmt: skip
TRANSFORMER = KeyMap(
    [
        *(Rule(f"transformer_blocks.*.{ours}", f"blocks.*.{comfy}") for ours, comfy in _BLOCK.items()),
        *(Rule(f"{name}.linear_{number}", f"{name}_linear_{number}") for name in ("time_embedding", "ofs_embedding") for number in (1, 2)),
        *(Rule(name, name) for name in _SAME),
    ]
)
