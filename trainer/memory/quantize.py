"""Weights quantised as they are loaded: fp8 and int8 with a scale for each row, or NormalFloat 4."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from . import fp8_products, nf4
from .frozen import FrozenWeight

if TYPE_CHECKING:
    from .choices import Quantized

INT8_LARGEST = 127.0
IN_CACHE = 1 << 19  # numbers that are quantised at once: what fits into a processor's cache


def quantized(weight: Tensor, form: Quantized) -> FrozenWeight:
    """A floating-point weight [out, in] in another form, on its device; a piece of it is converted at a time."""
    rows = max(IN_CACHE // max(weight.shape[1], 1), 1)
    pieces = [_FORMS[form](weight[start : start + rows].float()) for start in range(0, len(weight), rows)]
    data, scale = (torch.cat(parts) for parts in zip(*pieces, strict=True))
    return FrozenWeight(data, scale, NAMES[form], weight.shape[1])


def _fp8(rows: Tensor) -> tuple[Tensor, Tensor]:
    scale = _scale(rows, fp8_products.LARGEST)
    return (rows / scale).to(fp8_products.E4M3).view(torch.uint8), scale


def _int8(rows: Tensor) -> tuple[Tensor, Tensor]:
    scale = _scale(rows, INT8_LARGEST)
    return (rows / scale).round_().to(torch.int8).view(torch.uint8), scale


def _scale(rows: Tensor, largest: float) -> Tensor:
    """What brings the largest magnitude of each row [n, in] to `largest`, [n, 1]; 1 for rows of zeros, not finite where a row is not."""
    scale = rows.abs().amax(1, keepdim=True) / largest
    return torch.where(scale == 0, 1.0, scale)


_FORMS = {"fp8": _fp8, "int8": _int8, "nf4": nf4.pack}
NAMES = {"fp8": "float8_e4m3fn", "int8": "int8", "nf4": nf4.NAME}  # as FrozenWeight calls them
