"""Writes a model's transformer and VAE as the single files that ComfyUI's loaders read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...files import complete_or_absent
from ..files import ModelFiles
from ..key_map import KeyMap
from ..key_tensors import to_comfy
from ..shapes import with_config
from . import keys

if TYPE_CHECKING:
    from torch import Tensor

UNTOLD = ("task_type", "target_size", "rope_axes_dim", "rope_theta")  # what shapes do not tell of a transformer


def write_comfy_files(files: ModelFiles, transformer_file: Path, vae_file: Path) -> None:
    """Converts the parts of a diffusers folder; the files appear complete or not at all. Metadata tell us what shapes do not."""
    config = files.config("transformer")
    own = with_config("transformer", {name: config[name] for name in UNTOLD if name in config})
    _write(files.folder("transformer"), keys.TRANSFORMER, transformer_file, own)
    _write(files.folder("vae"), keys.VAE, vae_file, {})


def _write(folder: Path, names: KeyMap, file: Path, metadata: dict[str, str]) -> None:
    from safetensors.torch import load_file, save_file

    state: dict[str, Tensor] = {name: tensor for part in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(part).items()}
    with complete_or_absent(file) as beside:
        save_file({name: tensor.contiguous() for name, tensor in to_comfy(names, state).items()}, beside, metadata)
