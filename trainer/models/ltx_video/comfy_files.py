"""Writes a model's transformer and VAE as the single files that ComfyUI's loaders read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...files import complete_or_absent
from ..files import ModelFiles
from ..key_tensors import to_comfy
from ..shapes import with_config
from . import keys
from .vae_pieces import comfy_config, tensor_to_comfy

if TYPE_CHECKING:
    from torch import Tensor


def write_comfy_files(files: ModelFiles, causal: bool, transformer_file: Path, vae_file: Path) -> None:
    """Converts the parts; the files appear complete or not at all. Their metadata tells ComfyUI the sizes, and whether time is causal."""
    config, vae = files.config("transformer"), files.config("vae")
    names = ("num_attention_heads", "attention_head_dim", "num_layers", "cross_attention_dim", "caption_channels", "in_channels")
    shape = {name: config[name] for name in names} | {"causal_temporal_positioning": causal}
    transformer = to_comfy(keys.TRANSFORMER, _tensors(files, "transformer"))
    _write(transformer, transformer_file, {"transformer": shape}, with_config("transformer", config))
    tensors = {tensor_to_comfy(name, vae): tensor for name, tensor in _tensors(files, "vae").items()}
    _write(tensors, vae_file, {"vae": comfy_config(vae)}, with_config("vae", vae))


def _tensors(files: ModelFiles, part: str) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    found = sorted(files.folder(part).glob("*.safetensors"))
    return {name: tensor for file in found for name, tensor in load_file(file).items()}


def _write(tensors: dict[str, Tensor], file: Path, config: dict[str, Any], own: dict[str, str]) -> None:
    from safetensors.torch import save_file

    with complete_or_absent(file) as beside:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, beside, {"config": json.dumps(config), **own})
