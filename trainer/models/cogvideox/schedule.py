"""The noise schedule of CogVideoX in our noise levels, and v-prediction in our velocity.

A DDPM level mixes a·x0 + b·noise with a² + b² = 1; ours mixes (1 - sigma)·x0 + sigma·noise. They are the same mixture
at sigma = b / (a + b), theirs larger by a + b = 1 / sqrt((1 - sigma)² + sigma²). A step of DDIM and our Euler step keep
the same estimates of x0 and noise, so they are the same step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..base import constant

if TYPE_CHECKING:
    from torch import Tensor

_ROUNDING = 1e-3  # of a timestep: so far may a time be from a whole one, in float32


class Schedule:
    """The levels of a scheduler's configuration; `levels` [steps] are our noise levels at timesteps 0, 1, …"""

    def __init__(self, config: Mapping[str, Any]) -> None:
        import torch
        from diffusers import CogVideoXDDIMScheduler

        scheduler: Any = CogVideoXDDIMScheduler.from_config(dict(config))
        powers = scheduler.alphas_cumprod.double()
        a, b = powers.sqrt(), (1 - powers).sqrt()
        self.levels = (b / (a + b)).float()
        self._between: list[float] = ((self.levels[1:] + self.levels[:-1]) / 2).tolist()
        self._from_clean = torch.cat([self.levels.new_zeros(1), self.levels])

    def sigma(self, time: Tensor) -> Tensor:
        """The noise level at a time in [0, 1]: 0 is clean, and each of the N timesteps t has the times from t / N up to (t + 1) / N.

        So the times 1, 1 - 1/n, … are the timesteps of n sampling steps with the spacing "trailing".
        """
        timestep = (time.double() * len(self.levels) - _ROUNDING).ceil().clamp(0, len(self.levels))
        return self._from_clean.to(time.device)[timestep.long()]

    def timestep(self, sigma: Tensor) -> Tensor:
        """The timestep nearest to a noise level, [B] whole numbers."""
        import torch

        return torch.bucketize(sigma, constant(self._between, sigma))


def scale(sigma: Tensor) -> Tensor:
    """How much larger the model's mixture is than ours: a + b, at sigma [B], as [B, 1, 1, 1, 1]."""
    return ((1 - sigma).square() + sigma.square()).rsqrt().view(-1, 1, 1, 1, 1)


def velocity(v: Tensor, x: Tensor, sigma: Tensor) -> Tensor:
    """V = a·noise - b·x0 as noise - x0, at our x [B, C, T, h, w] and sigma [B].

    Of x' = (a + b)·x there are x0 = a·x' - b·v and noise = b·x' + a·v, so noise - x0 = (b - a)·x' + (a + b)·v.
    """
    size = scale(sigma)
    return (2 * sigma - 1).view(-1, 1, 1, 1, 1) * size.square() * x + size * v
