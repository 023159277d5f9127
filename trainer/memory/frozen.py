"""FrozenLinear: a linear layer whose weight stays as it is stored or was quantised, and is dequantised when it is used."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from . import nf4
from .fp8_products import LEAST_ROWS, Fp8Product, multiplies, suits
from .pieces import at_once, rows_at_once

GGUF = "gguf."  # before the name of a GGUF type
_unread: ContextVar[bool] = ContextVar("weights are not read", default=False)


@dataclass(frozen=True)
class FrozenWeight:
    """A weight [out, in] as plain tensors: `data` [out, bytes of a row] uint8, and `scale` [] or [out, 1] float32."""

    data: Tensor
    scale: Tensor
    form: str  # float8_e4m3fn, float8_e5m2, int8, nf4, or gguf. and the type's name
    columns: int | None = None  # in, where the bytes of a row can hold more numbers

    def dequantize(self, dtype: torch.dtype) -> Tensor:
        """The weight times its scale, rounded once: [out, in]."""
        table = nf4.pair_table(self.data.device) if self.form == nf4.NAME else None
        return dequantize(self.data, self.scale, self.form, dtype, self.columns, table)


def dequantize(
    data: Tensor, scale: Tensor, form: str, dtype: torch.dtype, columns: int | None = None, table: Tensor | None = None
) -> Tensor:
    """Stored rows [out, bytes] times their scale [] or [out, 1] in `dtype`: [out, columns]. nf4 needs its `pair_table`.

    Plain tensor operations: the compiler fuses them; without it, where `columns` are told, a piece of the rows is converted at a time.
    """
    if columns is None or at_once(len(data) * columns):
        return _values(data, form, table).mul_(scale)[:, :columns].to(dtype)
    made = torch.empty(len(data), columns, dtype=dtype, device=data.device)
    rows = rows_at_once(columns)
    for start in range(0, len(data), rows):
        part = scale[start : start + rows] if scale.dim() else scale
        made[start : start + rows] = _values(data[start : start + rows], form, table).mul_(part)[:, :columns]
    return made


def _values(data: Tensor, form: str, table: Tensor | None) -> Tensor:
    """Stored rows before their scale, float32."""
    if form.startswith(GGUF):
        return gguf_values(data, form.removeprefix(GGUF))
    if form == nf4.NAME:
        assert table is not None
        return nf4.unpack(data, table)
    return data.view(getattr(torch, form)).float()


def gguf_values(data: Tensor, name: str) -> Tensor:
    """Rows [out, bytes] of a GGUF type as float32 [out, in]."""
    import gguf
    from diffusers.quantizers.gguf.utils import dequantize_functions

    kind = gguf.GGMLQuantizationType[name]
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = data.reshape(-1, size)
    return dequantize_functions[kind](blocks, numbers, size, dtype=torch.float32).reshape(len(data), -1).float()


class FrozenLinear(nn.Linear):
    """A linear layer over a FrozenWeight: W·x + b, computed in the precision of x or of autocast.

    Its tensors are buffers that no cast of the module changes: the weight's bytes, and the bits of its scale. Only the
    input gets a gradient, and the weight is dequantised again for it rather than kept. `compute_dtype` is the precision
    that the layer was loaded for; PEFT makes a LoRA's weights in it. `fp8_products`, which `set_fp8_products` sets where it
    can be, multiplies the stored fp8 numbers themselves.
    """

    weight_data: Tensor
    scale_bits: Tensor
    pair_table: Tensor | None  # of nf4

    def __init__(self, weight: FrozenWeight, in_features: int, bias: nn.Parameter | None, compute_dtype: torch.dtype) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = in_features, len(weight.data)
        self.form, self.compute_dtype, self.fp8_products = weight.form, compute_dtype, False
        self.register_buffer("weight_data", weight.data)
        self.register_buffer("scale_bits", weight.scale.float().contiguous().view(torch.int32))
        self.register_buffer("pair_table", nf4.pair_table(weight.data.device) if weight.form == nf4.NAME else None, persistent=False)
        self.register_parameter("bias", bias)

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        """The weight [out, in], in `compute_dtype` unless told otherwise."""
        scale = self.scale_bits.view(torch.float32)
        return dequantize(self.weight_data, scale, self.form, dtype or self.compute_dtype, self.in_features, self.pair_table)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The dequantised weight, made anew each time it is asked for; of its size, and not a number, where `weights_unread`."""
        if _unread.get():
            none = torch.tensor(math.nan, dtype=self.compute_dtype, device=self.weight_data.device)
            return none.expand(self.out_features, self.in_features)
        return self.dequantize()

    def forward(self, input: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        kind = input.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else input.dtype
        x, scale = input.to(dtype), self.scale_bits.view(torch.float32)
        bias = self.bias.to(dtype) if self.bias is not None else None
        if self.fp8_products and x.numel() >= LEAST_ROWS * self.in_features:
            product: Tensor = Fp8Product.apply(x, self.weight_data, scale)
            return product if bias is None else product + bias
        return _FrozenProduct.apply(x, self.weight_data, scale, bias, self.form, self.pair_table)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """Sizes and form."""
        return f"{self.in_features}, {self.out_features}, {self.form}"


class _FrozenProduct(torch.autograd.Function):
    """x·Wᵀ + b, whose backward pass needs the stored bytes only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, data: Tensor, scale: Tensor, bias: Tensor | None, form: str, table: Tensor | None) -> Tensor:
        ctx.save_for_backward(data, scale, table)
        ctx.form, ctx.columns = form, x.shape[-1]
        with torch.autocast(x.device.type, enabled=False):
            return nn.functional.linear(x, dequantize(data, scale, form, x.dtype, ctx.columns, table), bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        data, scale, table = ctx.saved_tensors
        (grad,) = grads
        with torch.autocast(grad.device.type, enabled=False):
            weight = dequantize(data, scale, ctx.form, grad.dtype, ctx.columns, table)
            return grad @ weight, None, None, None, None, None


@contextmanager
def weights_unread() -> Iterator[None]:
    """Inside the block only sizes, precision and device of frozen weights are asked for: PEFT does so twenty times a layer."""
    before = _unread.set(True)
    try:
        yield
    finally:
        _unread.reset(before)


def weight_dtype(layer: nn.Linear) -> torch.dtype:
    """The precision of a linear layer's weight, for a frozen one that it computes in."""
    return layer.compute_dtype if isinstance(layer, FrozenLinear) else layer.weight.dtype


def frozen_forms(module: nn.Module) -> dict[str, str]:
    """The form of each frozen layer of a model by its name, with or without a LoRA on it."""
    layers = ((name.removesuffix(".base_layer"), layer) for name, layer in module.named_modules())
    return {name: layer.form for name, layer in layers if isinstance(layer, FrozenLinear)}


def set_fp8_products(module: nn.Module, device: torch.device, on: bool = True) -> int:
    """Switches fp8 products of all frozen layers of a model that will compute on `device`, where they can be; how many have them."""
    layers = [layer for layer in module.modules() if isinstance(layer, FrozenLinear)]
    able = on and multiplies(device)
    for layer in layers:
        layer.fp8_products = able and suits(layer.form, layer.out_features, layer.in_features)
    return sum(layer.fp8_products for layer in layers)
