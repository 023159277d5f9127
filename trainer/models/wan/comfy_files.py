"""Writes diffusers folders of transformers and VAEs as the single files that ComfyUI's loaders read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...files import complete_or_absent
from ..key_tensors import to_comfy
from . import keys

if TYPE_CHECKING:
    from torch import Tensor


def write_transformer(folder: Path, file: Path) -> None:
    """One transformer's diffusers folder as a file, which appears complete or not at all.

    The metadata name its head count and text width, which ComfyUI otherwise assumes from the released sizes.
    """
    config = _config(folder)
    shape = {"num_heads": config["num_attention_heads"], "text_dim": config["text_dim"]}
    _write(to_comfy(keys.TRANSFORMER, _tensors(folder)), file, {"config": json.dumps({"transformer": shape})})


def write_vae(folder: Path, file: Path) -> None:
    """A VAE's diffusers folder as a file, which appears complete or not at all."""
    _write(to_comfy(keys.vae_keys(_config(folder)), _tensors(folder)), file, {})


def _config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def _tensors(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def _write(tensors: dict[str, Tensor], file: Path, metadata: dict[str, str]) -> None:
    from safetensors.torch import save_file

    with complete_or_absent(file) as beside:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, beside, metadata)
