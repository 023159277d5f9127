"""Writes a diffusers folder's transformer and VAE as the single files that ComfyUI's loaders read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...files import complete_or_absent
from ..key_map import KeyMap
from ..key_tensors import to_comfy
from . import keys

if TYPE_CHECKING:
    from torch import Tensor


def write_comfy_files(transformer_folder: Path, vae_folder: Path, transformer_file: Path, vae_file: Path) -> None:
    """Converts the parts of a diffusers folder; the files appear complete or not at all."""
    _write(transformer_folder, keys.TRANSFORMER, transformer_file)
    _write(vae_folder, keys.VAE, vae_file)


def _write(folder: Path, names: KeyMap, file: Path) -> None:
    from safetensors.torch import load_file, save_file

    state: dict[str, Tensor] = {name: tensor for part in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(part).items()}
    with complete_or_absent(file) as beside:
        save_file({name: tensor.contiguous() for name, tensor in to_comfy(names, state).items()}, beside)
