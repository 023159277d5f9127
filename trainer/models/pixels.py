"""Pixels and latents through a video VAE of diffusers, whose pixels are in [-1, 1]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def encode_frames(vae: Any, frames: Tensor) -> Tensor:
    """Posterior mode, un-normalised: [F, H, W, 3] uint8 -> [C, T, h, w] float32 on the CPU."""
    parameter = next(vae.parameters())
    return encode_clip(vae, frames.to(parameter.device, parameter.dtype) / 127.5 - 1)


def encode_clip(vae: Any, clip: Tensor) -> Tensor:
    """The same of a clip [F, H, W, 3] in [-1, 1]."""
    import torch
    from einops import rearrange

    parameter = next(vae.parameters())
    video = rearrange(clip, "f h w c -> 1 c f h w").to(parameter.device, parameter.dtype)
    with torch.no_grad():
        return vae.encode(video).latent_dist.mode()[0].float().cpu()


def decode_latents(vae: Any, latents: Tensor, *arguments: Any) -> Tensor:
    """Latents as `encode_frames` gives them, [1, C, T, h, w] -> [F, H, W, 3] uint8 on the CPU; `arguments` are the decoder's own."""
    import torch

    parameter = next(vae.parameters())
    with torch.no_grad():
        return to_frames(vae.decode(latents.to(parameter.device, parameter.dtype), *arguments, return_dict=False)[0])


def to_frames(video: Tensor) -> Tensor:
    """[1, 3, F, H, W] in [-1, 1] or so -> [F, H, W, 3] uint8 on the CPU."""
    import torch
    from einops import rearrange

    return rearrange(((video.float() + 1) * 127.5).round().clamp(0, 255).to(torch.uint8), "1 c f h w -> f h w c").cpu()
