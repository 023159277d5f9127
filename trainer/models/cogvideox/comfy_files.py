"""Writes a diffusers folder's transformer and VAE as the single files that ComfyUI's loaders read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...files import complete_or_absent
from ..key_tensors import to_comfy
from ..shapes import with_config
from . import keys
from .single_files import TABLE

if TYPE_CHECKING:
    from torch import Tensor


def write_comfy_files(transformer_folder: Path, vae_folder: Path, transformer_file: Path, vae_file: Path) -> None:
    """Converts the parts of a diffusers folder; the files appear complete or not at all.

    By the table of positions ComfyUI tells models that add positions from those that rotate by them, and it has no
    other source of the first; diffusers keeps only learned tables and computes the rest.
    """
    state, config = _tensors(transformer_folder), _config(transformer_folder)
    if not config.get("use_rotary_positional_embeddings") and TABLE not in state:
        state[TABLE] = _table(config).to(next(iter(state.values())).dtype)
    _write(to_comfy(keys.TRANSFORMER, state), transformer_file, with_config("transformer", config))
    _write(_tensors(vae_folder), vae_file, with_config("vae", _config(vae_folder)))


def _table(config: dict[str, Any]) -> Tensor:
    """The positions [1, text and patches, width] of the model's own size."""
    from accelerate import init_empty_weights
    from diffusers import CogVideoXTransformer3DModel

    with init_empty_weights(include_buffers=False):
        model: Any = CogVideoXTransformer3DModel.from_config(config)
    return model.patch_embed.pos_embedding


def _config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def _tensors(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def _write(tensors: dict[str, Tensor], file: Path, metadata: dict[str, str]) -> None:
    from safetensors.torch import save_file

    with complete_or_absent(file) as beside:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, beside, metadata)
