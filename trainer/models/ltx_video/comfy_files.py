"""Writes a model's transformer and VAE as the single files that ComfyUI's loaders read."""

from __future__ import annotations

import json
from pathlib import Path

from ..files import ModelFiles
from ..key_tensors import to_comfy
from ..part_files import folder_tensors, write_tensors
from ..shapes import with_config
from . import keys
from .vae_pieces import comfy_config, tensor_to_comfy


def write_comfy_files(files: ModelFiles, causal: bool, transformer_file: Path, vae_file: Path) -> None:
    """Converts the parts; the files appear complete or not at all. Their metadata tells ComfyUI the sizes, and whether time is causal."""
    config, vae = files.config("transformer"), files.config("vae")
    names = ("num_attention_heads", "attention_head_dim", "num_layers", "cross_attention_dim", "caption_channels", "in_channels")
    shape = {name: config[name] for name in names} | {"causal_temporal_positioning": causal}
    transformer = to_comfy(keys.TRANSFORMER, folder_tensors(files.folder("transformer")))
    told = {"config": json.dumps({"transformer": shape}), **with_config("transformer", config)}
    write_tensors(transformer, transformer_file, told)
    tensors = {tensor_to_comfy(name, vae): tensor for name, tensor in folder_tensors(files.folder("vae")).items()}
    write_tensors(tensors, vae_file, {"config": json.dumps({"vae": comfy_config(vae)}), **with_config("vae", vae)})
