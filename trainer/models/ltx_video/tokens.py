"""The transformer's tokens: latents packed into a sequence, and where each token lies in the video."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def pack(latents: Tensor) -> Tensor:
    """Latents [B, C, T, h, w] -> tokens [B, T·h·w, C], frame by frame, row by row (LTXPipeline's _pack_latents, patches of one)."""
    return latents.flatten(2).transpose(1, 2)


def unpack(tokens: Tensor, shape: Sequence[int]) -> Tensor:
    """The inverse of `pack`; `shape` ends with T, h, w."""
    return tokens.transpose(1, 2).unflatten(2, tuple(shape[-3:]))


def positions(shape: Sequence[int], stride: tuple[int, int, int], fps: float, causal: bool, device: torch.device) -> Tensor:
    """Seconds, row and column of each token of latents [B, C, T, h, w], [B, 3, T·h·w].

    LTXPipeline's rope_interpolation_scale puts latent frame t at stride·t / fps. Causal models, whose first latent frame
    holds a single frame, count from its end: max(stride·t + 1 - stride, 0) / fps, LTXConditionPipeline's _scale_video_ids.
    """
    import torch

    frames, rows, columns = (
        step * torch.arange(size, device=device, dtype=torch.float32) for step, size in zip(stride, shape[-3:], strict=True)
    )
    if causal:
        frames = (frames + 1 - stride[0]).clamp(min=0)
    grid = torch.meshgrid(frames / fps, rows, columns, indexing="ij")
    return torch.stack(grid).flatten(1).expand(shape[0], -1, -1)
