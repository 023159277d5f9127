"""How noise levels sigma in [0, 1] are drawn and spaced; 1 is pure noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import draws

if TYPE_CHECKING:
    from torch import Tensor

    from ..job import ObjectiveSettings


_ATTEMPTS = 1000


def shift_sigma(sigma: Tensor, shift: float) -> Tensor:
    """Moves noise levels up (shift > 1) or down (< 1): s·sigma / (1 + (s - 1)·sigma) (Esser et al. 2024, section 5.3.2)."""
    return (shift * sigma / (1 + (shift - 1) * sigma)).clamp(max=1)  # which rounding may pass


def draw_sigma(settings: ObjectiveSettings, shift: float, *key: int | str) -> Tensor:
    """One training noise level for the key; logit-normal is sigmoid(mean + deviation·n), n standard normal (Esser et al. 2024)."""
    import torch

    source = draws.generator(*key)
    if settings.timesteps == "uniform":
        sigma = torch.rand((), generator=source)
    else:
        sigma = torch.sigmoid(settings.logit_mean + settings.logit_std * torch.randn((), generator=source))
    return shift_sigma(sigma, shift)


def draw_sigma_within(
    low: float, high: float, settings: ObjectiveSettings, shift: float, level: Callable[[Tensor], Tensor], *key: int | str
) -> Tensor:
    """The first of the key's noise levels in [low, high), or 1 if high is; if none of many is, one of them all alike.

    `level` gives the noise level at a time of the model's own schedule.
    """
    import torch

    for attempt in range(_ATTEMPTS):
        sigma = level(draw_sigma(settings, shift, *key, *((attempt,) if attempt else ())))
        if low <= sigma and (sigma < high or high == 1):
            return sigma
    return low + (high - low) * torch.rand((), generator=draws.generator(*key, "uniform"))


def min_snr_weight(sigma: Tensor, gamma: float) -> Tensor:
    """Weight of the velocity's squared error at which that of the clean video counts by min(SNR, gamma) (Hang et al. 2023).

    The clean video's error is sigma times the velocity's, and SNR = ((1 - sigma) / sigma)².
    """
    import torch

    return torch.minimum((1 - sigma).square(), gamma * sigma.square())


def sampling_sigmas(steps: int, shift: float) -> Tensor:
    """Noise levels of a sampler, [steps + 1] from 1 to 0, evenly spaced before the shift."""
    import torch

    return shift_sigma(torch.linspace(1, 0, steps + 1), shift)
