"""Writes a model's transformer and VAE as the single files that ComfyUI's loaders read."""

from __future__ import annotations

from pathlib import Path

from ..files import ModelFiles
from ..key_tensors import to_comfy
from ..part_files import folder_tensors, write_tensors
from ..shapes import with_config
from . import keys


def write_comfy_files(files: ModelFiles, transformer_file: Path, vae_file: Path) -> None:
    """Converts the parts; the files appear complete or not at all. Their metadata hold the configurations, for ourselves.

    The VAE keeps its names: ComfyUI reads it in diffusers' own.
    """
    tensors = to_comfy(keys.TRANSFORMER, folder_tensors(files.folder("transformer")))
    write_tensors(tensors, transformer_file, with_config("transformer", files.config("transformer")))
    write_tensors(folder_tensors(files.folder("vae")), vae_file, with_config("vae", files.config("vae")))
