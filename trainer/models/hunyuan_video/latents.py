"""Pixels and latents through HunyuanVideo's VAE (AutoencoderKLHunyuanVideo)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def encode_frames(vae: Any, frames: Tensor) -> Tensor:
    """Posterior mode, not scaled: [F, H, W, 3] uint8 -> [16, T, h, w] float32 on the CPU."""
    import torch
    from einops import rearrange

    parameter = next(vae.parameters())
    video = rearrange(frames, "f h w c -> 1 c f h w").to(parameter.device, parameter.dtype) / 127.5 - 1
    with torch.no_grad():
        return vae.encode(video).latent_dist.mode()[0].float().cpu()


def decode_latents(vae: Any, latents: Tensor) -> Tensor:
    """Latents as `encode_frames` gives them, [1, 16, T, h, w] -> [F, H, W, 3] uint8 on the CPU."""
    import torch
    from einops import rearrange

    parameter = next(vae.parameters())
    with torch.no_grad():
        video = vae.decode(latents.to(parameter.device, parameter.dtype), return_dict=False)[0]
    return rearrange(((video.float() + 1) * 127.5).round().clamp(0, 255).to(torch.uint8), "1 c f h w -> f h w c").cpu()
