"""Names of HiDream's modules, which are the same in diffusers and in ComfyUI, and of its VAE's, which are not.

Source: the parameter names of diffusers' HiDreamImageTransformer2DModel and AutoencoderKL against those of ComfyUI's classes.
"""

from __future__ import annotations

from ..key_map import KeyMap, Rule
from ..layout import Config

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

_RESIDUAL = {name: name for name in ("norm1", "conv1", "norm2", "conv2")} | {"conv_shortcut": "nin_shortcut"}
_ATTENTION = {"group_norm": "norm", "to_q": "q", "to_k": "k", "to_v": "v", "to_out.0": "proj_out"}
_ENDS = {"conv_in": "conv_in", "conv_norm_out": "norm_out", "conv_out": "conv_out"}


def vae_keys(config: Config) -> KeyMap:
    """Names of AutoencoderKL's modules; single files count the decoder's stages backwards."""
    last = len(config["block_out_channels"]) - 1
    rules = list[Rule]()
    for half in ("encoder", "decoder"):
        rules += _below(half, half, _ENDS)
        rules += _below(f"{half}.mid_block.attentions.0", f"{half}.mid.attn_1", _ATTENTION)
        for number in (0, 1):
            rules += _below(f"{half}.mid_block.resnets.{number}", f"{half}.mid.block_{number + 1}", _RESIDUAL)
    rules += _below("encoder.down_blocks.*.resnets.*", "encoder.down.*.block.*", _RESIDUAL)
    rules.append(Rule("encoder.down_blocks.*.downsamplers.0.conv", "encoder.down.*.downsample.conv"))
    for stage in range(last + 1):
        ours, theirs = f"decoder.up_blocks.{stage}", f"decoder.up.{last - stage}"
        rules += _below(f"{ours}.resnets.*", f"{theirs}.block.*", _RESIDUAL)
        rules.append(Rule(f"{ours}.upsamplers.0.conv", f"{theirs}.upsample.conv"))
    return KeyMap(rules, prefix="")


def _below(ours: str, theirs: str, names: dict[str, str]) -> list[Rule]:
    return [Rule(f"{ours}.{own}", f"{theirs}.{other}") for own, other in names.items()]
