"""Writes a model's transformer and VAE as the single files that ComfyUI's loaders read."""

from __future__ import annotations

import json
from pathlib import Path

from ..files import ModelFiles
from ..key_tensors import to_comfy
from ..part_files import folder_tensors, write_tensors
from . import keys


def write_comfy_files(files: ModelFiles, transformer_file: Path, vae_file: Path) -> None:
    """Converts the parts; the files appear complete or not at all.

    The metadata name the transformer's head count and text width, which ComfyUI otherwise assumes from the released sizes.
    """
    config = files.config("transformer")
    shape = {"num_heads": config["num_attention_heads"], "text_dim": config["text_dim"]}
    transformer = to_comfy(keys.TRANSFORMER, folder_tensors(files.folder("transformer")))
    write_tensors(transformer, transformer_file, {"config": json.dumps({"transformer": shape})})
    write_tensors(to_comfy(keys.vae_keys(files.config("vae")), folder_tensors(files.folder("vae"))), vae_file)
