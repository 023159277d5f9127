"""Tokenizers and text encoders of a model's parts text_encoder, text_encoder_2, …, on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .base import TextEncoder
from .files import ModelFiles

if TYPE_CHECKING:
    import torch
    from torch import nn


def load_encoder(files: ModelFiles, kind: type[nn.Module], dtype: torch.dtype) -> TextEncoder:
    """The only text encoder, a class of transformers, and its tokenizer."""
    module = files.load("text_encoder", kind, dtype)
    return TextEncoder(load_tokenizer(files, ""), module.requires_grad_(False).eval())


def load_encoders(files: ModelFiles, numbers: Mapping[str, str], kinds: Mapping[str, type[nn.Module]], dtype: torch.dtype) -> TextEncoder:
    """Several by name; `numbers` are the ends of their parts' names, such as "" and "_2"."""
    from torch.nn import ModuleDict

    modules = {name: files.load(f"text_encoder{number}", kinds[name], dtype) for name, number in numbers.items()}
    return TextEncoder(load_tokenizers(files, numbers), ModuleDict(modules).requires_grad_(False).eval())


def load_tokenizers(files: ModelFiles, numbers: Mapping[str, str]) -> dict[str, Any]:
    """The tokenizers by name."""
    return {name: load_tokenizer(files, number) for name, number in numbers.items()}


def load_tokenizer(files: ModelFiles, number: str) -> Any:
    """The tokenizer of the text encoder of this number."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(files.folder(f"tokenizer{number}"), trust_remote_code=False)
