"""First stage: an autoencoder for the world, trained from nothing on endless rendered clips."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any

from .clip_coding import decode_clip, encode_clip
from .model import build_vae, latent_statistics
from .schedule import Average, Schedule, train
from .world import Tracks, draw, pack, random_figure, random_scene

if TYPE_CHECKING:
    from torch import Tensor

LATENT_NOISE = 0.05  # of the latents' own spread: neighbours in latent space must look alike
SHAPE_WEIGHT = 6.0  # extra weight of the shape's pixels and their surroundings
FIGURES = 0.4  # part of the clips that are free figures, so that new concepts can be coded


def train_vae(seed: int, device: str, stages: list[tuple[int, int, Schedule]], bank: int = 60_000, start: Any = None) -> Any:
    """Train through stages of (frames, batch, schedule); the result's latents have Wan 2.1's statistics."""
    import torch

    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = True
    vae = (start or build_vae()).to(device).train()
    _channels_last(vae)
    tracks = _track_bank(bank, seed).to(device)
    for frames, batch, schedule in stages:
        _train_stage(vae, tracks, frames, batch, schedule, device)
    _fix_statistics(vae, tracks, device)
    return vae.eval()


def _train_stage(vae: Any, tracks: Tracks, frames: int, count: int, schedule: Schedule, device: str) -> None:
    """One stage: `count` clips of `frames` frames a step, Adam with a falling rate; ends on the average of the weights."""
    import torch

    def batch() -> tuple[Tensor, Tensor]:
        return _clips(tracks[torch.randint(len(tracks.tips), (count,), device=device)], frames)

    optimizer = torch.optim.Adam(vae.parameters(), lr=schedule.rate, betas=(0.9, 0.99), fused=device != "cpu")
    train(f"vae {frames} frames", vae, partial(_loss, vae), batch, schedule, optimizer, Average(vae, 0.998), device)


def _loss(vae: Any, pixels: Tensor, shape: Tensor) -> Tensor:
    """How far the decoded clip is from the clip, the shape's pixels counting more (pixels in -1..1)."""
    import torch

    latents = encode_clip(vae, pixels).float()
    spread = latents.detach().std((0, 2, 3, 4), keepdim=True)
    difference = decode_clip(vae, latents + LATENT_NOISE * spread * torch.randn_like(latents)).float() - pixels
    weight = 1 + SHAPE_WEIGHT * shape
    return (weight / weight.mean() * (difference.abs() + 2 * difference.square())).mean()


def _clips(tracks: Tracks, frames: int) -> tuple[Tensor, Tensor]:
    """Pixels [B, 3, F, H, W] in -1..1 and where the shape is, a little widened, [B, 1, F, H, W]."""
    import torch

    pixels, shape = draw(tracks, 17)
    if frames == 1:
        moment = torch.randint(17, (len(pixels),), device=pixels.device)
        rows = torch.arange(len(pixels), device=pixels.device)
        pixels, shape = pixels[rows, moment][:, None], shape[rows, moment][:, None]
    pixels = (pixels / 127.5 - 1).permute(0, 4, 1, 2, 3)  # already channels-last in memory
    return pixels, torch.nn.functional.max_pool2d(shape, 5, stride=1, padding=2)[:, None]


def _track_bank(count: int, seed: int) -> Tracks:
    """Scenes and figures to train on; some figures in colours that have no name."""
    import torch

    generator = random.Random(seed)
    figures = int(count * FIGURES)
    tracks = pack([random_figure(generator) for _ in range(figures)] + [random_scene(generator) for _ in range(count - figures)])
    odd = figures // 2
    for colours in (tracks.body, tracks.core, tracks.background):
        colours[:odd] = 255 * torch.rand(odd, 3, generator=torch.Generator().manual_seed(generator.getrandbits(32)))
    return tracks


def _fix_statistics(vae: Any, tracks: Tracks, device: str, clips: int = 1024) -> None:
    """Fold an affine map into quant_conv and post_quant_conv so that latents have the configured mean and spread."""
    import torch

    figures = int(len(tracks.tips) * FIGURES)
    with torch.no_grad():
        scenes = figures + torch.randperm(len(tracks.tips) - figures, device=device)[:clips]
        parts = [encode_clip(vae, _clips(tracks[part], 17)[0]) for part in scenes.split(32)]
        latents = torch.cat(parts).double()
        own_mean, own_std = latents.mean((0, 2, 3, 4)), latents.std((0, 2, 3, 4))
        mean, std = (value.flatten().double() for value in latent_statistics(vae))
        scale = std / own_std
        weight, bias = vae.quant_conv.weight, vae.quant_conv.bias  # [2·C, 2·C, 1, 1, 1]; the second half: log variance
        count = len(scale)
        weight[:count] = (weight[:count].double() * scale.view(-1, 1, 1, 1, 1)).to(weight)
        bias[:count] = ((bias[:count].double() - own_mean) * scale + mean).to(bias)
        weight[count:] = 0
        bias[count:] = (2 * torch.log(LATENT_NOISE * std)).to(bias)
        after = vae.post_quant_conv
        inverse = after.weight.double() / scale.view(1, -1, 1, 1, 1)
        shift = own_mean - mean / scale  # old latent = new / scale + shift
        after.bias += (after.weight.double().flatten(1) @ shift).to(after.bias)
        after.weight.copy_(inverse.to(after.weight))


def _channels_last(vae: Any) -> None:
    """Lay the convolutions' weights out as the GPU's kernels like them."""
    import torch

    for module in vae.modules():
        if isinstance(module, torch.nn.Conv3d):
            module.to(memory_format=torch.channels_last_3d)
        elif isinstance(module, torch.nn.Conv2d):
            module.to(memory_format=torch.channels_last)
