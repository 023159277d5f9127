"""A LoRA's tensors in each convention: names, halves, and where alpha goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .comfy import to_comfy
from .names import Convention
from .weights import LoraPair, LoraWeights

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ..models.base import ModelFamily

IMPLEMENTATIONS: dict[Convention, str] = {  # modelspec.implementation: whose names the keys are
    "comfyui": "https://github.com/comfyanonymous/ComfyUI",
    "diffusers": "https://github.com/huggingface/diffusers",
    "musubi": "https://github.com/kohya-ss/musubi-tuner",
    "kohya": "https://github.com/comfyanonymous/ComfyUI",
}


def to_tensors(weights: LoraWeights, family: ModelFamily, convention: Convention, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """The file's tensors by key, float32, or `dtype` where that loses nothing."""
    if convention == "diffusers":
        tensors = _diffusers(weights)
    elif convention == "comfyui":
        prefix, folded = family.keys.prefix, family.spec.folds_alpha
        tensors = _lettered({prefix + name: pair for name, pair in to_comfy(weights, family).items()}, folded)
    else:
        tensors = _flat(to_comfy(weights, family, family.keys.original if convention == "musubi" else family.keys))
    return {key: _smallest(tensor, dtype) for key, tensor in tensors.items()}


def _diffusers(weights: LoraWeights) -> dict[str, Tensor]:
    """What any diffusers pipeline and PEFT read.

    Without metadata these take alpha for the rank, and both to be one for all layers (get_peft_kwargs in diffusers'
    peft_utils.py): alpha is folded into the upper half, and all layers are filled up with zeros to one rank.
    """
    from torch.nn.functional import pad

    rank = max(pair.rank for pair in weights.pairs.values())
    filled: dict[str, LoraPair] = {}
    for module, pair in weights.pairs.items():
        lacking = rank - pair.rank
        filled[f"transformer.{module}"] = LoraPair(pad(pair.down, (0, 0, 0, lacking)), pad(pair.up * pair.scale, (0, lacking)), rank)
    return _lettered(filled, folded=True)


def _lettered(pairs: Mapping[str, LoraPair], folded: bool) -> dict[str, Tensor]:
    """Halves named lora_A and lora_B, alpha beside them, or `folded` into the upper half for readers that know no alpha."""
    import torch

    tensors: dict[str, Tensor] = {}
    for name, pair in pairs.items():
        tensors[f"{name}.lora_A.weight"] = pair.down
        tensors[f"{name}.lora_B.weight"] = pair.up * pair.scale if folded and pair.scale != 1 else pair.up
        if not folded:
            tensors[f"{name}.alpha"] = torch.tensor(float(pair.alpha))
    return tensors


def _flat(pairs: Mapping[str, LoraPair]) -> dict[str, Tensor]:
    """Halves named lora_down and lora_up, alpha beside them, and the layer's name without dots."""
    import torch

    tensors: dict[str, Tensor] = {}
    for name, pair in pairs.items():
        layer = f"lora_unet_{name.replace('.', '_')}"
        tensors[f"{layer}.lora_down.weight"] = pair.down
        tensors[f"{layer}.lora_up.weight"] = pair.up
        tensors[f"{layer}.alpha"] = torch.tensor(float(pair.alpha))
    return tensors


def _smallest(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    import torch

    small = tensor if dtype is None else tensor.to(dtype)
    return (small if torch.equal(small.float(), tensor.float()) else tensor).contiguous()
