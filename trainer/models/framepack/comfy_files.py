"""Writes a diffusers folder's transformer and VAE as the single files that ComfyUI's nodes read."""

from __future__ import annotations

from pathlib import Path

from ...files import complete_or_absent


def write_comfy_files(transformer_folder: Path, vae_folder: Path, transformer_file: Path, vae_file: Path) -> None:
    """Joins the parts of a diffusers folder; tensors keep their names. The files appear complete or not at all."""
    from safetensors.torch import load_file, save_file

    for folder, file in ((transformer_folder, transformer_file), (vae_folder, vae_file)):
        tensors = {name: tensor for part in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(part).items()}
        with complete_or_absent(file) as beside:
            save_file(tensors, beside)
