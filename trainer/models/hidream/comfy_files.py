"""Writes a model's transformer and VAE as the single files that ComfyUI's loaders read."""

from __future__ import annotations

from pathlib import Path

from ..files import ModelFiles
from ..key_tensors import to_comfy
from ..part_files import folder_tensors, write_tensors
from ..shapes import with_config
from . import keys

UNTOLD = {  # what shapes do not tell of a part
    "transformer": (
        "attention_head_dim", "axes_dims_rope", "llama_layers", "max_resolution", "num_activated_experts", "num_attention_heads",
        "patch_size",
    ),
    "vae": ("norm_num_groups", "scaling_factor", "shift_factor"),
}  # fmt: skip


def write_comfy_files(files: ModelFiles, transformer_file: Path, vae_file: Path) -> None:
    """Converts the parts of a diffusers folder; the files appear complete or not at all. Metadata tell us what shapes do not."""
    transformer = to_comfy(keys.TRANSFORMER, folder_tensors(files.folder("transformer")))
    write_tensors(transformer, transformer_file, _own(files, "transformer"))
    vae = to_comfy(keys.vae_keys(files.config("vae")), folder_tensors(files.folder("vae")))
    convolutions = {name: tensor[..., None, None] for name, tensor in vae.items() if ".attn_1." in name and tensor.dim() == 2}
    write_tensors(vae | convolutions, vae_file, _own(files, "vae"))


def _own(files: ModelFiles, part: str) -> dict[str, str]:
    config = files.config(part)
    return with_config(part, {name: config[name] for name in UNTOLD[part] if name in config})
