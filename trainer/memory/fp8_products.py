"""Matrix products of fp8 numbers with a scale for each row, forward and for the input's gradient.

The weight's scales lie along its rows, which are what the forward product keeps and what the backward product sums over: there they
are multiplied into the incoming gradient before that is quantised. Weights are never trained here, so there is no third product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .pieces import at_once, rows_at_once

FORM = "float8_e4m3fn"
E4M3, LARGEST = torch.float8_e4m3fn, 448.0
SMALLEST = 1e-30  # of a row's largest magnitude, so that a row of zeros has a scale
MULTIPLE = 16  # of both sides of a weight, as the kernels want it
LEAST_ROWS = 16  # of x: fewer, as those that a block's modulation is made of, gain nothing and are dearest to round
CAPABILITY = (8, 9)


def multiplies(device: torch.device) -> bool:
    """Whether a device has fp8 products; on a CPU they are there to be tested."""
    if device.type == "cuda":
        return torch.version.hip is None and torch.cuda.get_device_capability(device) >= CAPABILITY
    return device.type == "cpu"


def suits(form: str, rows: int, columns: int) -> bool:
    """Whether a weight of this form and size can be multiplied in fp8."""
    return form == FORM and rows % MULTIPLE == columns % MULTIPLE == 0


class Fp8Product(torch.autograd.Function):
    """x·Wᵀ of x [..., in] and stored e4m3 rows [out, in] with their scale [] or [out, 1]; keeps no more than those."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, data: Tensor, scale: Tensor) -> Tensor:
        """[..., out] in the precision of x, rounded to bf16."""
        ctx.save_for_backward(data, scale)
        with torch.autocast(x.device.type, enabled=False):
            numbers, rows = quantized_rows(x.reshape(-1, x.shape[-1]))
            y = scaled_product(numbers, data.view(E4M3).t(), rows, _each_row(scale, data).t(), fast=True)
        return y.view(*x.shape[:-1], len(data)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of x."""
        data, scale = ctx.saved_tensors
        (grad,) = grads
        columns = torch.ones(1, data.shape[1], device=data.device)
        with torch.autocast(grad.device.type, enabled=False):
            numbers, rows = quantized_rows(grad.reshape(-1, grad.shape[-1]), _each_row(scale, data).t())
            dx = scaled_product(numbers, data.t().contiguous().view(E4M3).t(), rows, columns, fast=False)
        return dx.view(*grad.shape[:-1], data.shape[1]).to(grad.dtype), None, None


def scaled_product(left: Tensor, right: Tensor, rows: Tensor, columns: Tensor, fast: bool) -> Tensor:
    """E4m3 [M, K] and, laid out by columns, [K, N], times float32 scales [M, 1] and [1, N]: bf16 [M, N].

    `fast` sums in the tensor cores' own precision, which torchao also takes for the forward product alone.
    """
    return torch._scaled_mm(left, right, scale_a=rows, scale_b=columns, out_dtype=torch.bfloat16, use_fast_accum=fast)


def quantized_rows(x: Tensor, factors: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """X [M, K], times factors [1, K] where there are some, as e4m3 [M, K] and the scale of each row [M, 1] float32."""
    if at_once(x.numel()):
        return _quantized_rows(x, factors)
    step = rows_at_once(x.shape[1])
    numbers, scales = torch.empty(x.shape, dtype=E4M3, device=x.device), torch.empty(len(x), 1, device=x.device)
    for start in range(0, len(x), step):
        part = slice(start, start + step)
        numbers[part], scales[part] = _quantized_rows(x[part], factors)
    return numbers, scales


def _quantized_rows(x: Tensor, factors: Tensor | None) -> tuple[Tensor, Tensor]:
    values = x.float() if factors is None else x.float() * factors
    scale = values.abs().amax(1, keepdim=True).clamp_min(SMALLEST) / LARGEST
    return (values / scale).clamp(-LARGEST, LARGEST).to(E4M3), scale


def _each_row(scale: Tensor, data: Tensor) -> Tensor:
    """A scale [] or [out, 1] as [out, 1]."""
    return scale.reshape(-1, 1).expand(len(data), 1).contiguous()
