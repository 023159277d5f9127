"""The VAE as the row of blocks that ComfyUI keeps it as: names of its tensors there, and the configuration it is built from.

Sources: the module names and configurations of diffusers' AutoencoderKLLTXVideo against those of the released files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_DOWNSAMPLERS = {
    "conv": "compress_all",
    "spatial": "compress_space_res",
    "temporal": "compress_time_res",
    "spatiotemporal": "compress_all_res",
}
_WHOLE = {  # tensors outside the blocks
    "latents_mean": "per_channel_statistics.mean-of-means",
    "latents_std": "per_channel_statistics.std-of-means",
    "decoder.time_embedder.": "decoder.last_time_embedder.",
    "decoder.scale_shift_table": "decoder.last_scale_shift_table",
}
_INSIDE = {".resnets.": ".res_blocks.", ".conv_shortcut.conv.": ".conv_shortcut.", ".norm3.": ".norm3.norm."}


@dataclass(frozen=True)
class Piece:
    """One block in ComfyUI: its kind there and its parameters, and the modules of diffusers' model that are in it."""

    kind: str
    ours: str  # prefix of the modules in diffusers
    single: bool = True  # whether the prefix is one module, else a stage whose residual blocks keep their names
    parameters: dict[str, Any] = field(default_factory=dict)


def encoder_pieces(config: Mapping[str, Any]) -> Iterator[Piece]:
    """The encoder's blocks in order, from the VAE's configuration in diffusers."""
    channels, newer = config["block_out_channels"], "095" in config["down_block_types"][-1]
    stages = len(channels) - newer
    for stage in range(stages):
        here = f"encoder.down_blocks.{stage}."
        grown = channels[min(stage + 1, len(channels) - 1)] // channels[stage]
        yield Piece("res_x", here, single=False, parameters={"num_layers": config["layers_per_block"][stage]})
        if config["spatio_temporal_scaling"][stage]:
            kind = config["downsample_type"][stage] if newer else "conv"
            yield Piece(_DOWNSAMPLERS[kind], f"{here}downsamplers.0.", parameters={} if kind == "conv" else {"multiplier": grown})
        if grown > 1 and not newer:
            yield Piece("res_x_y", f"{here}conv_out.", parameters={"multiplier": grown})
    yield Piece("res_x", "encoder.mid_block.", single=False, parameters={"num_layers": config["layers_per_block"][-1]})


def decoder_pieces(config: Mapping[str, Any]) -> Iterator[Piece]:
    """The decoder's blocks in the order in which they work."""
    channels, layers, noise, scaled, residual, factors = (
        config[name][::-1]
        for name in (
            "decoder_block_out_channels", "decoder_layers_per_block", "decoder_inject_noise", "decoder_spatio_temporal_scaling",
            "upsample_residual", "upsample_factor",
        )
    )  # fmt: skip
    width = channels[0]
    yield Piece("res_x", "decoder.mid_block.", single=False, parameters={"num_layers": layers[0], "inject_noise": noise[0]})
    for stage, wide in enumerate(channels):
        here, made = f"decoder.up_blocks.{stage}.", wide // factors[stage]
        if (shrunk := width // factors[stage] // made) > 1:
            yield Piece("res_x_y", f"{here}conv_in.", parameters={"multiplier": shrunk, "inject_noise": noise[stage + 1]})
        if scaled[stage]:
            yield Piece("compress_all", f"{here}upsamplers.0.", parameters={"residual": residual[stage], "multiplier": factors[stage]})
        yield Piece("res_x", here, single=False, parameters={"num_layers": layers[stage + 1], "inject_noise": noise[stage + 1]})
        width = made


def comfy_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """What ComfyUI builds the VAE from; it lists the decoder's blocks backwards."""
    encoder, decoder = ([[piece.kind, piece.parameters] for piece in pieces] for pieces in (encoder_pieces(config), decoder_pieces(config)))
    return {
        "_class_name": "CausalVideoAutoencoder", "dims": 3, "in_channels": config["in_channels"], "out_channels": config["out_channels"],
        "latent_channels": config["latent_channels"], "encoder_blocks": encoder, "decoder_blocks": decoder[::-1],
        "encoder_base_channels": config["block_out_channels"][0],
        "decoder_base_channels": config["decoder_block_out_channels"][0] // config["upsample_factor"][0],
        "norm_layer": "pixel_norm", "patch_size": config["patch_size"], "latent_log_var": "uniform", "spatial_padding_mode": "zeros",
        "causal_decoder": config["decoder_causal"], "timestep_conditioning": config["timestep_conditioning"],
    }  # fmt: skip


def tensor_to_comfy(name: str, config: Mapping[str, Any]) -> str:
    """ComfyUI's name of one of the VAE's tensors."""
    for ours, comfy in _WHOLE.items():
        if name.startswith(ours):
            return comfy + name.removeprefix(ours)
    pieces = [("encoder.down_blocks", encoder_pieces(config)), ("decoder.up_blocks", decoder_pieces(config))]
    places = [(piece, f"{row}.{number}.") for row, found in pieces for number, piece in enumerate(found)]
    for piece, comfy in sorted(places, key=lambda place: not place[0].single):  # a stage's prefix is also that of its single modules
        if name.startswith(piece.ours):
            name = comfy + name.removeprefix(piece.ours)
            break
    for ours, comfy in _INSIDE.items():
        name = name.replace(ours, comfy)
    return name
