"""Stochastic rounding: bfloat16 parameters whose optimizer computes in float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .draws import key_seed

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

ROUNDED = "rounded_steps"  # in the first group of parameters, so that checkpoints hold it: steps done, which key the draws
LOWER = 0xFFFF  # the bits that bfloat16 does not have


def round_by_chance(optimizer: torch.optim.Optimizer, seed: int) -> None:
    """Makes each step of the optimizer take its bfloat16 parameters and their gradients as float32, and round what comes out by chance.

    Any optimizer then keeps float32 state, and steps smaller than bfloat16 can hold are not lost: their mean stays. The
    float32 copies live only while it steps. Draws are keyed by `seed`, the step and the parameter's place.
    """
    import torch

    if not any(parameter.dtype == torch.bfloat16 for parameter in _parameters(optimizer)):
        return
    wide: list[nn.Parameter] = []

    def before(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if wide:  # torch calls hooks twice where a class of ours calls the step of a class of a library
            return
        wide[:] = [p for p in _parameters(optimizer) if p.dtype == torch.bfloat16 and p.grad is not None]
        for parameter in wide:
            _widen(parameter)

    def after(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not wide:
            return
        first = optimizer.param_groups[0]
        first[ROUNDED] = first.get(ROUNDED, 0) + 1
        for place, parameter in enumerate(wide):
            draw = key_seed(seed, "rounding", first[ROUNDED], place)
            parameter.grad = None
            parameter.data = rounded(parameter.data, torch.Generator(parameter.device).manual_seed(draw))
        wide.clear()

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)


def rounded(values: Tensor, generator: torch.Generator) -> Tensor:
    """float32 values as bfloat16, each one of its two neighbours, the nearer the likelier, so that the mean is the value itself.

    Adding 16 random bits below bfloat16's last one carries into it with just that chance. What bfloat16 holds exactly,
    infinities and not-a-numbers stay.
    """
    import torch

    bits = values.view(torch.int32)
    noise = torch.randint(0, LOWER + 1, values.shape, dtype=torch.int32, device=values.device, generator=generator)
    moved = ((bits + noise) & ~LOWER).view(torch.float32)
    return torch.where(values.isfinite(), moved, values).to(torch.bfloat16)


@contextmanager
def in_float32(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Inside the block bfloat16 parameters are float32: for work of the optimizer outside its step; after it the nearest bfloat16."""
    import torch

    narrow = [parameter for parameter in _parameters(optimizer) if parameter.dtype == torch.bfloat16]
    for parameter in narrow:
        _widen(parameter)
    try:
        yield
    finally:
        for parameter in narrow:
            parameter.data = parameter.data.to(torch.bfloat16)


def _widen(parameter: nn.Parameter) -> None:
    """Parameter and gradient as float32; torch wants both in one type at all times."""
    grad, parameter.grad = parameter.grad, None
    parameter.data = parameter.data.float()
    parameter.grad = None if grad is None else grad.float()


def _parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
