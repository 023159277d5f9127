"""Writes a model's transformer and VAE as the single files that ComfyUI's loaders read."""

from __future__ import annotations

from pathlib import Path

from ..files import ModelFiles
from ..key_tensors import to_comfy
from ..part_files import folder_tensors, write_tensors
from ..shapes import with_config
from . import keys

UNTOLD = ("task_type", "target_size", "rope_axes_dim", "rope_theta")  # what shapes do not tell of a transformer


def write_comfy_files(files: ModelFiles, transformer_file: Path, vae_file: Path) -> None:
    """Converts the parts of a diffusers folder; the files appear complete or not at all. Metadata tell us what shapes do not."""
    config = files.config("transformer")
    own = with_config("transformer", {name: config[name] for name in UNTOLD if name in config})
    write_tensors(to_comfy(keys.TRANSFORMER, folder_tensors(files.folder("transformer"))), transformer_file, own)
    write_tensors(to_comfy(keys.VAE, folder_tensors(files.folder("vae"))), vae_file)
