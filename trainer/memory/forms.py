"""Linear layers in blocks without weights, as they are when they are held in a form."""

from __future__ import annotations

import torch
from torch import nn

from . import nf4
from .blocks import blocks_of
from .frozen import GGUF, FrozenLinear, FrozenWeight, set_fp8_products


def row_bytes(form: str, columns: int) -> int:
    """Bytes of a row of so many numbers in a form, as FrozenWeight calls it."""
    if form.startswith(GGUF):
        import gguf

        numbers, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[form.removeprefix(GGUF)]]
        return -(-columns // numbers) * size
    return -(-columns // nf4.BLOCK) * nf4.BYTES if form == nf4.NAME else columns


def weight_size(form: str) -> float:
    """Bytes of a weight of a long row."""
    return row_bytes(form, 1 << 20) / (1 << 20)


def hold(transformer: nn.Module, form: str, fp8_products: bool) -> None:
    """Freezes the linear layers in the blocks of a transformer on the meta device; a LoRA goes on afterwards."""
    for block in blocks_of(transformer).values():
        for parent in list(block.modules()):
            for name, layer in list(parent.named_children()):
                if type(layer) is nn.Linear:
                    setattr(parent, name, _frozen(layer, form))
    set_fp8_products(transformer, torch.device("cpu"), fp8_products)


def _frozen(layer: nn.Linear, form: str) -> FrozenLinear:
    device = layer.weight.device
    data = torch.empty(layer.out_features, row_bytes(form, layer.in_features), dtype=torch.uint8, device=device)
    weight = FrozenWeight(data, torch.empty(layer.out_features, 1, device=device), form, layer.in_features)
    return FrozenLinear(weight, layer.in_features, layer.bias, layer.weight.dtype)
