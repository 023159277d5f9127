"""The autoencoder on whole clips at once: the same numbers as its chunk path, without clamp, several times as fast to train."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def encode_clip(vae: Any, pixels: Tensor) -> Tensor:
    """Posterior means [B, C, T, h, w] of pixels [B, 3, F, H, W] in -1..1, F = 4·(T - 1) + 1."""
    net = vae.encoder
    x = net.conv_in(pixels)
    for layer in net.down_blocks:
        x = _shrink(layer, x) if type(layer).__name__ == "WanResample" else layer(x)
    x = net.conv_out(net.nonlinearity(net.norm_out(net.mid_block(x))))
    return vae.quant_conv(x).chunk(2, dim=1)[0]


def decode_clip(vae: Any, latents: Tensor) -> Tensor:
    """Pixels [B, 3, F, H, W], not clamped, of latents [B, C, T, h, w]."""
    net = vae.decoder
    x = net.mid_block(net.conv_in(vae.post_quant_conv(latents)))
    for block in net.up_blocks:
        for layer in block.resnets:
            x = layer(x)
        if block.upsamplers is not None:
            x = _grow(block.upsamplers[0], x)
    return net.conv_out(net.nonlinearity(net.norm_out(x)))


def _shrink(layer: Any, x: Tensor) -> Tensor:
    """Halve height and width; in time keep the first frame and halve the rest."""
    import torch

    x = _framewise(layer.resample, x)
    if layer.mode == "downsample3d" and x.shape[2] > 1:
        x = torch.cat([x[:, :, :1], layer.time_conv(x)], dim=2)
    return x


def _grow(layer: Any, x: Tensor) -> Tensor:
    """Double height and width; in time keep the first frame and double the rest."""
    import torch

    if layer.mode == "upsample3d" and x.shape[2] > 1:
        rest = layer.time_conv(x[:, :, 1:])  # [B, 2·C, T - 1, h, w]: the two halves are neighbours in time
        rest = torch.stack(rest.chunk(2, dim=1), dim=3).flatten(2, 3)
        x = torch.cat([x[:, :, :1], rest], dim=2)
    return _framewise(layer.resample, x)


def _framewise(layer: Any, x: Tensor) -> Tensor:
    """Apply a layer for images to every frame of [B, C, T, h, w]."""
    batch, frames = x.shape[0], x.shape[2]
    y = layer(x.permute(0, 2, 1, 3, 4).flatten(0, 1))
    return y.unflatten(0, (batch, frames)).permute(0, 2, 1, 3, 4)
