"""Writes a model's transformer and VAE as the single files that ComfyUI's loaders read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...files import complete_or_absent
from ..files import ModelFiles
from ..key_tensors import to_comfy
from ..shapes import with_config
from . import keys

if TYPE_CHECKING:
    from torch import Tensor


def write_comfy_files(files: ModelFiles, transformer_file: Path, vae_file: Path) -> None:
    """Converts the parts; the files appear complete or not at all. Their metadata hold the configurations, for ourselves.

    The VAE keeps its names: ComfyUI reads it in diffusers' own.
    """
    write(files, "transformer", to_comfy(keys.TRANSFORMER, tensors(files, "transformer")), transformer_file)
    write(files, "vae", tensors(files, "vae"), vae_file)


def tensors(files: ModelFiles, part: str) -> dict[str, Tensor]:
    """All of a part's."""
    from safetensors.torch import load_file

    found = sorted(files.folder(part).glob("*.safetensors"))
    return {name: tensor for file in found for name, tensor in load_file(file).items()}


def write(files: ModelFiles, part: str, made: dict[str, Tensor], file: Path) -> None:
    """Tensors of a part as a file, its configuration in the metadata."""
    from safetensors.torch import save_file

    with complete_or_absent(file) as beside:
        save_file({name: tensor.contiguous() for name, tensor in made.items()}, beside, with_config(part, files.config(part)))
