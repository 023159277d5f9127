"""A part's tensors out of its diffusers folder, and as the single file that ComfyUI's loaders read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import complete_or_absent

if TYPE_CHECKING:
    from torch import Tensor


def folder_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a part's safetensors files."""
    from safetensors.torch import load_file

    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def write_tensors(tensors: Mapping[str, Tensor], file: Path, metadata: Mapping[str, str] | None = None) -> None:
    """A safetensors file, which appears complete or not at all."""
    from safetensors.torch import save_file

    with complete_or_absent(file) as beside:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, beside, dict(metadata or {}))
