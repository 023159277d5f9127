"""The optimizer and its learning-rate schedule."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.optim.lr_scheduler import LambdaLR

    from .job import OptimizerSettings


def make_optimizer(parameters: list[nn.Parameter], settings: OptimizerSettings) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter 2019) over float32 parameters; fused on a GPU."""
    import torch

    return torch.optim.AdamW(
        parameters,
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        weight_decay=settings.weight_decay,
        fused=parameters[0].device.type == "cuda",
    )


def make_schedule(optimizer: torch.optim.Optimizer, settings: OptimizerSettings, steps: int) -> LambdaLR:
    """Linear warm-up, then constant or cosine to zero at `steps`; counts optimizer steps only."""
    from torch.optim.lr_scheduler import LambdaLR

    return LambdaLR(optimizer, lambda step: learning_rate_factor(step, settings, steps))


def learning_rate_factor(step: int, settings: OptimizerSettings, steps: int) -> float:
    """Factor in (0, 1] on the learning rate at 0-based `step`."""
    if step < settings.warmup:
        return (step + 1) / (settings.warmup + 1)
    if settings.schedule == "constant":
        return 1.0
    progress = (step - settings.warmup) / max(steps - settings.warmup, 1)
    return 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
