"""Decodes a video of sections: two of them at a time, blended where they overlap, so that length costs time but no memory.

Source: diffusers' HunyuanVideoFramepackPipeline, which decodes as it makes the sections.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .packing import WINDOW, section_count

if TYPE_CHECKING:
    from torch import Tensor

OVERLAP = 4 * WINDOW - 3  # frames that nine latents decode to


def decode(vae: Any, latents: Tensor, forward: bool) -> Tensor:
    """The VAE's latents [1, C, T, h, w] -> frames [1, 3, F, H, W] in [-1, 1] or so, float32 on the CPU."""
    import torch

    parameter, video = next(vae.parameters()), None
    for part in _parts(latents.shape[2], forward):
        with torch.no_grad():
            frames = vae.decode(latents[:, :, part].to(parameter.device, parameter.dtype), return_dict=False)[0].float().cpu()
        if video is None:
            video = frames
            continue
        before, after = (video, frames) if forward else (frames, video)
        share = torch.linspace(1, 0, OVERLAP).view(-1, 1, 1)
        blended = share * before[:, :, -OVERLAP:] + (1 - share) * after[:, :, :OVERLAP]
        video = torch.cat([before[:, :, :-OVERLAP], blended, after[:, :, OVERLAP:]], dim=2)
    assert video is not None
    return video


def _parts(latents: int, forward: bool) -> Iterator[slice]:
    """What is decoded at once, in the order in which sections are made: each with the one made before it."""
    sections = section_count(latents)
    if sections <= 1:
        yield slice(0, latents)
    elif forward:
        yield slice(0, 1 + WINDOW)
        yield from (slice(1 + (number - 1) * WINDOW, 1 + (number + 1) * WINDOW) for number in range(1, sections))
    else:
        yield slice(latents - WINDOW, latents)
        for number in reversed(range(sections - 1)):
            yield slice(1 + number * WINDOW if number else 0, 1 + (number + 2) * WINDOW)
