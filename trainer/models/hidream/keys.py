"""Names of HiDream's modules, which are the same in diffusers and in ComfyUI, and of its VAE's, which are not.

Source: the parameter names of diffusers' HiDreamImageTransformer2DModel against those of ComfyUI's class.
"""

from __future__ import annotations

from ..key_map import KeyMap, Rule
from ..layout import Config
from ..vae_keys import vae_rules

_IMAGE_ATTENTION = ("to_q", "to_k", "to_v", "to_out", "q_rms_norm", "k_rms_norm")
_TEXT_ATTENTION = tuple(f"{name}_t" for name in _IMAGE_ATTENTION)
_EXPERTS = ("ff_i.gate", *(f"ff_i.{expert}.w{number}" for expert in ("shared_experts", "experts.*") for number in (1, 2, 3)))
_SINGLE = ("adaLN_modulation.1", *(f"attn1.{name}" for name in _IMAGE_ATTENTION), *_EXPERTS, *(f"ff_i.w{number}" for number in (1, 2, 3)))
_DOUBLE = (*_SINGLE, *(f"attn1.{name}" for name in _TEXT_ATTENTION), *(f"ff_t.w{number}" for number in (1, 2, 3)))
_AROUND = (
    "x_embedder.proj", "t_embedder.timestep_embedder.linear_1", "t_embedder.timestep_embedder.linear_2",
    "p_embedder.pooled_embedder.linear_1", "p_embedder.pooled_embedder.linear_2", "caption_projection.*.linear",
    "final_layer.linear", "final_layer.adaLN_modulation.1",
)  # fmt: skip
_NAMES = (
    *_AROUND,
    *(f"double_stream_blocks.*.block.{name}" for name in _DOUBLE),
    *(f"single_stream_blocks.*.block.{name}" for name in _SINGLE),
)
TRANSFORMER = KeyMap([Rule(name, name) for name in _NAMES])


def vae_keys(config: Config) -> KeyMap:
    """Names of AutoencoderKL's modules."""
    return KeyMap(vae_rules(len(config["block_out_channels"])), prefix="")
