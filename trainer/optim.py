"""The optimizer and its learning-rate schedule."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import nn

    from .job import OptimizerSettings


def make_optimizer(parameters: list[nn.Parameter], settings: OptimizerSettings) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter 2019) over float32 parameters; fused on a GPU."""
    import torch

    return torch.optim.AdamW(
        parameters,
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        weight_decay=settings.weight_decay,
        fused=any(parameter.device.type == "cuda" for parameter in parameters),
    )


def follow_parameters(optimizer: torch.optim.Optimizer) -> None:
    """Moves what the optimizer keeps of each parameter to where that lies now: those of an idle expert are on the host."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            for name, value in state.items():
                if value.dim() or group["fused"]:  # the count of steps stays on the host, except for the fused kernel
                    state[name] = value.to(parameter.device)


def learning_rate(step: int, settings: OptimizerSettings, steps: int) -> float:
    """The rate of optimizer step `step`, 1 to `steps`: linear warm-up, then constant or a half cosine towards zero.

    It depends on nothing else, so that resuming and training further cannot disturb it.
    """
    if step <= settings.warmup:
        return settings.learning_rate * step / (settings.warmup + 1)
    if settings.schedule == "constant":
        return settings.learning_rate
    progress = (step - 1 - settings.warmup) / max(steps - settings.warmup, 1)
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
