"""Writes a model's transformer and VAE as the single files that ComfyUI's loaders read."""

from __future__ import annotations

from pathlib import Path

from ..files import ModelFiles
from ..key_tensors import to_comfy
from ..part_files import folder_tensors, write_tensors
from . import keys


def write_comfy_files(files: ModelFiles, transformer_file: Path, vae_file: Path) -> None:
    """Converts the parts; the files appear complete or not at all. ComfyUI takes any such file for one of the released size."""
    for part, names, file in (
        ("transformer", keys.transformer(files.config("transformer")["num_layers"]), transformer_file),
        ("vae", keys.vae(files.config("vae")), vae_file),
    ):
        write_tensors(to_comfy(names, folder_tensors(files.folder(part))), file)
