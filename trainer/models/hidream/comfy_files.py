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

UNTOLD = {  # what shapes do not tell of a part
    "transformer": (
        "attention_head_dim", "axes_dims_rope", "llama_layers", "max_resolution", "num_activated_experts", "num_attention_heads",
        "patch_size",
    ),
    "vae": ("norm_num_groups", "scaling_factor", "shift_factor"),
}  # fmt: skip


def write_comfy_files(files: ModelFiles, transformer_file: Path, vae_file: Path) -> None:
    """Converts the parts of a diffusers folder; the files appear complete or not at all. Metadata tell us what shapes do not."""
    _write(to_comfy(keys.TRANSFORMER, _tensors(files, "transformer")), transformer_file, _own(files, "transformer"))
    vae = to_comfy(keys.vae_keys(files.config("vae")), _tensors(files, "vae"))
    convolutions = {name: tensor[..., None, None] for name, tensor in vae.items() if ".attn_1." in name and tensor.dim() == 2}
    _write(vae | convolutions, vae_file, _own(files, "vae"))


def _own(files: ModelFiles, part: str) -> dict[str, str]:
    config = files.config(part)
    return with_config(part, {name: config[name] for name in UNTOLD[part] if name in config})


def _tensors(files: ModelFiles, part: str) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    found = sorted(files.folder(part).glob("*.safetensors"))
    return {name: tensor for file in found for name, tensor in load_file(file).items()}


def _write(tensors: dict[str, Tensor], file: Path, metadata: dict[str, str]) -> None:
    from safetensors.torch import save_file

    with complete_or_absent(file) as beside:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, beside, metadata)
