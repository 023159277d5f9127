"""Writes a model's transformer and VAE as the single files that ComfyUI's loaders read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import ModelFiles
from ..key_tensors import to_comfy
from ..part_files import folder_tensors, write_tensors
from ..shapes import with_config
from . import keys
from .single_files import TABLE

if TYPE_CHECKING:
    from torch import Tensor


def write_comfy_files(files: ModelFiles, transformer_file: Path, vae_file: Path) -> None:
    """Converts the parts; the files appear complete or not at all.

    By the table of positions ComfyUI tells models that add positions from those that rotate by them, and it has no
    other source of the first; diffusers keeps only learned tables and computes the rest.
    """
    state, config = folder_tensors(files.folder("transformer")), files.config("transformer")
    if not config.get("use_rotary_positional_embeddings") and TABLE not in state:
        state[TABLE] = _table(config).to(next(iter(state.values())).dtype)
    write_tensors(to_comfy(keys.TRANSFORMER, state), transformer_file, with_config("transformer", config))
    write_tensors(folder_tensors(files.folder("vae")), vae_file, with_config("vae", files.config("vae")))


def _table(config: dict[str, Any]) -> Tensor:
    """The positions [1, text and patches, width] of the model's own size."""
    from accelerate import init_empty_weights
    from diffusers import CogVideoXTransformer3DModel

    with init_empty_weights(include_buffers=False):
        model: Any = CogVideoXTransformer3DModel.from_config(config)
    return model.patch_embed.pos_embedding
