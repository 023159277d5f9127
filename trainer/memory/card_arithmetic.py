"""CardArithmetic: what PyTorch does on a card where it does something else on a CPU, for tensors that only stand for a card's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

aten = torch.ops.aten
IN_FLOAT32 = {  # of autocast on a card (ATen/autocast_mode.h); CPU autocast leaves them as they are
    functional.layer_norm, functional.group_norm, functional.softmax, functional.softplus, torch.softmax,
    Tensor.softmax, torch.exp, Tensor.exp, torch.log, Tensor.log, torch.pow, Tensor.pow, Tensor.__pow__, torch.rsqrt, Tensor.rsqrt,
    torch.reciprocal, Tensor.reciprocal, torch.sum, Tensor.sum, torch.cumsum, Tensor.cumsum, torch.norm, Tensor.norm,
    torch.linalg.vector_norm,
}  # fmt: skip


class CardArithmetic(TorchFunctionMode):
    """Attention by fused kernels, norms in float32 under autocast and by one kernel.

    Attention without a mask is FlashAttention's, which keeps its output and a number for each row; with a mask it is the
    memory-efficient kernel.
    """

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            return _attention(*args, **kwargs)
        if func is functional.rms_norm:
            return _rms_norm(*args, **kwargs)
        if func in IN_FLOAT32 and torch.is_autocast_enabled("cpu"):
            args = tuple(_float32(value) for value in args)
            kwargs = {name: _float32(value) for name, value in kwargs.items()}
        return func(*args, **kwargs)


def _float32(value: Any) -> Any:
    half = isinstance(value, Tensor) and value.is_floating_point() and value.element_size() < 4
    return value.float() if half else value


def _computed(tensor: Tensor) -> Tensor:
    """The tensor in autocast's precision."""
    return tensor.to(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else tensor


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    query, key, value = map(_computed, (query, key, value))
    if enable_gqa and key.shape[1] != query.shape[1]:
        repeats = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    if attn_mask is None:
        return aten._scaled_dot_product_flash_attention(query, key, value, 0.0, is_causal, scale=scale)[0]
    bias = torch.empty_like(attn_mask, dtype=query.dtype) if attn_mask.dtype == torch.bool else attn_mask.to(query.dtype)
    bias = bias.expand(*query.shape[:-1], key.shape[-2])
    return aten._scaled_dot_product_efficient_attention(query, key, value, bias, torch.is_grad_enabled(), scale=scale)[0]


def _rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    input, weight = _norm_input(input), None if weight is None else _norm_input(weight)
    if weight is not None and weight.dtype != input.dtype:  # which PyTorch's kernel does not take either
        return functional.rms_norm(input, normalized_shape, weight, eps)
    return aten._fused_rms_norm(input, list(normalized_shape), weight, eps)[0]


def _norm_input(tensor: Tensor) -> Tensor:
    return _float32(tensor) if torch.is_autocast_enabled("cpu") else tensor
