"""Writes a diffusers folder's transformer and VAE as the single files that ComfyUI's loaders read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...files import complete_or_absent
from ..key_tensors import to_comfy
from . import keys

if TYPE_CHECKING:
    from torch import Tensor


def write_comfy_files(transformer_folder: Path, vae_folder: Path, transformer_file: Path, vae_file: Path) -> None:
    """Converts the parts of a diffusers folder; the files appear complete or not at all.

    The VAE keeps its names: ComfyUI reads it in diffusers' own.
    """
    _write(to_comfy(keys.TRANSFORMER, _tensors(transformer_folder)), transformer_file)
    _write(_tensors(vae_folder), vae_file)


def _tensors(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def _write(tensors: dict[str, Tensor], file: Path) -> None:
    from safetensors.torch import save_file

    with complete_or_absent(file) as beside:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, beside)
