"""FrozenLinear: a linear layer whose weight stays as a file stores it and is dequantised when it is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

GGUF = "gguf."  # before the name of a GGUF type


@dataclass(frozen=True)
class FrozenWeight:
    """A weight [out, in] as plain tensors: `data` [out, bytes of a row] uint8, and `scale` [] or [out, 1] float32."""

    data: Tensor
    scale: Tensor
    form: str  # float8_e4m3fn, float8_e5m2, or gguf. and the type's name

    def dequantize(self, dtype: torch.dtype) -> Tensor:
        """The weight times its scale, rounded once: [out, in]."""
        return dequantize(self.data, self.scale, self.form, dtype)


def dequantize(data: Tensor, scale: Tensor, form: str, dtype: torch.dtype) -> Tensor:
    """Stored rows [out, bytes] times their scale [] or [out, 1] in `dtype`: [out, in]."""
    values = gguf_values(data, form.removeprefix(GGUF)) if form.startswith(GGUF) else data.view(getattr(torch, form)).float()
    return values.mul_(scale).to(dtype)


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
    that the layer was loaded for; PEFT makes a LoRA's weights in it.
    """

    weight_data: Tensor
    scale_bits: Tensor
    fp8_products: bool = False

    def __init__(self, weight: FrozenWeight, in_features: int, bias: nn.Parameter | None, compute_dtype: torch.dtype) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = in_features, len(weight.data)
        self.form, self.compute_dtype = weight.form, compute_dtype
        self.register_buffer("weight_data", weight.data)
        self.register_buffer("scale_bits", weight.scale.float().contiguous().view(torch.int32))
        self.register_parameter("bias", bias)

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        """The weight [out, in], in `compute_dtype` unless told otherwise."""
        return dequantize(self.weight_data, self.scale_bits.view(torch.float32), self.form, dtype or self.compute_dtype)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The dequantised weight, made anew each time it is asked for."""
        return self.dequantize()

    def forward(self, input: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        kind = input.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else input.dtype
        bias = self.bias.to(dtype) if self.bias is not None else None
        return _FrozenProduct.apply(input.to(dtype), self.weight_data, self.scale_bits.view(torch.float32), bias, self.form)  # type: ignore[no-any-return]


class _FrozenProduct(torch.autograd.Function):
    """x·Wᵀ + b, whose backward pass needs the stored bytes only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, data: Tensor, scale: Tensor, bias: Tensor | None, form: str) -> Tensor:
        ctx.save_for_backward(data, scale)
        ctx.form = form
        with torch.autocast(x.device.type, enabled=False):
            return nn.functional.linear(x, dequantize(data, scale, form, x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        data, scale = ctx.saved_tensors
        (grad,) = grads
        with torch.autocast(grad.device.type, enabled=False):
            return grad @ dequantize(data, scale, ctx.form, grad.dtype), None, None, None, None


def weight_dtype(layer: nn.Linear) -> torch.dtype:
    """The precision of a linear layer's weight, for a frozen one that it computes in."""
    return layer.compute_dtype if isinstance(layer, FrozenLinear) else layer.weight.dtype
