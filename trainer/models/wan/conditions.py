"""What Wan is given of pictures: the formulas of diffusers' WanImageToVideoPipeline (`prepare_latents`, `encode_image`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from ..base import ImageEncoder


def clip_of(frames: int, first: Tensor, last: Tensor | None) -> Tensor:
    """A clip [frames, H, W, 3] in -1..1 that begins with a picture [H, W, 3] uint8, may end with one, and is grey between."""
    clip = first.new_zeros((frames, *first.shape)).float()
    clip[0] = first / 127.5 - 1
    if last is not None:
        clip[-1] = last / 127.5 - 1
    return clip


def frame_mask(like: Tensor, stride: int, last: bool) -> Tensor:
    """1 where frames are given, for latents `like` [B, C, T, h, w]: [B, stride, T, h, w], a channel for each frame of a latent frame.

    The first latent frame holds one frame, which fills all channels; the last frame is the last channel.
    """
    batch, _, frames, height, width = like.shape
    mask = like.new_zeros((batch, stride, frames, height, width))
    mask[:, :, 0] = 1
    if last:
        mask[:, -1, -1] = 1
    return mask


def seen(encoder: ImageEncoder, pictures: Sequence[Tensor]) -> Tensor:
    """What the image encoder sees of pictures [H, W, 3] uint8, its last layer but one: [pictures, tokens, D] float32."""
    from PIL import Image

    module: Any = encoder.module
    parameter = next(module.parameters())
    images = [Image.fromarray(picture.cpu().numpy()) for picture in pictures]
    pixels = encoder.processor(images=images, return_tensors="pt").pixel_values
    hidden = module(pixels.to(parameter.device, parameter.dtype), output_hidden_states=True).hidden_states
    return hidden[-2].float()


def token_times(time: Tensor, latent: Sequence[int], patch: Sequence[int], begins: Tensor | None) -> Tensor:
    """The time [B] of each token of latents [T, h, w]: [B, tokens]; 0 in the first frame of those that begin with a given one."""
    frames, area = latent[0] // patch[0], (latent[1] // patch[1]) * (latent[2] // patch[2])
    times = time.view(-1, 1, 1).repeat(1, frames, area)
    if begins is not None:
        times[:, 0] = times[:, 0] * ~begins[:, None]
    return times.flatten(1)
