"""Writes a model's transformer and VAE as the single files that ComfyUI's loaders read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...files import complete_or_absent
from ..files import ModelFiles
from ..key_map import KeyMap
from ..key_tensors import to_comfy
from . import keys

if TYPE_CHECKING:
    from torch import Tensor


def write_comfy_files(files: ModelFiles, transformer_file: Path, vae_file: Path) -> None:
    """Converts the parts; the files appear complete or not at all. ComfyUI takes any such file for one of the released size."""
    _write(keys.transformer(files.config("transformer")["num_layers"]), files.folder("transformer"), transformer_file)
    _write(keys.vae(files.config("vae")), files.folder("vae"), vae_file)


def _write(names: KeyMap, folder: Path, file: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors: dict[str, Tensor] = {name: tensor for part in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(part).items()}
    with complete_or_absent(file) as beside:
        save_file({name: tensor.contiguous() for name, tensor in to_comfy(names, tensors).items()}, beside)
