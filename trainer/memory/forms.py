"""Forms in which frozen linear layers are held: bytes of a weight, and layers that stand for them in a rehearsal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .blocks import blocks_of


@dataclass(frozen=True)
class Form:
    """How a weight is held."""

    size: float  # bytes, with scales
    in_float32: bool = False  # whether it passes through float32 on the way to the run's precision


FORMS = {
    "fp8": Form(1.0, in_float32=True),
    "int8": Form(1.0),
    "nf4": Form(33 / 64),  # and the size of each 64 in one byte
}


class HeldLinear(nn.Linear):
    """A linear layer whose weight is made anew at each use, or in fp8 products taken as it is."""

    def __init__(self, layer: nn.Linear, form: Form, fp8_products: bool) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features, self.bias = layer.in_features, layer.out_features, layer.bias
        self.form, self.fp8_products, self.compute_dtype = form, fp8_products, layer.weight.dtype
        held = torch.float8_e4m3fn if form.size == 1 else torch.uint8
        columns = layer.in_features if form.size == 1 else round(layer.in_features * form.size)
        self.weight = nn.Parameter(torch.empty(layer.out_features, columns, dtype=held, device=layer.weight.device), requires_grad=False)

    def forward(self, input: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else input.dtype
        return _HeldProduct.apply(input.to(dtype), self.weight, self)  # type: ignore[no-any-return]

    def product(self, x: Tensor, weight: Tensor, transposed: bool) -> Tensor:
        """X times the weight [out, in] or, to go forward, times its transpose."""
        if self.fp8_products:
            rows = x.reshape(-1, x.shape[-1])
            scale = torch.empty(rows.shape[0], 1)
            other = weight.t() if transposed else weight.t().contiguous().t()
            made = torch._scaled_mm(rows.to(weight.dtype), other, scale, torch.empty(1, other.shape[1]), out_dtype=x.dtype)
            return made.view(*x.shape[:-1], -1)
        if self.form.size == 1:
            whole = weight.float().mul_(1).to(x.dtype) if self.form.in_float32 else weight.to(x.dtype) * 1
        else:
            whole = torch.empty_like(weight[:, :1], dtype=x.dtype).expand(-1, self.in_features).clone()
        with torch.autocast("cpu", enabled=False):
            return x @ whole.t() if transposed else x @ whole


class _HeldProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, layer: HeldLinear) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.layer = layer
        return layer.product(x, weight, transposed=True)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.layer.product(grads[0], ctx.saved_tensors[0], transposed=False), None, None


def hold(transformer: nn.Module, form: Form, fp8_products: bool) -> None:
    """Puts layers that stand for a form into the place of the linear layers in the blocks; a LoRA goes on afterwards."""
    for block in blocks_of(transformer).values():
        for parent in list(block.modules()):
            for name, layer in list(parent.named_children()):
                if type(layer) is nn.Linear:
                    setattr(parent, name, HeldLinear(layer, form, fp8_products))
