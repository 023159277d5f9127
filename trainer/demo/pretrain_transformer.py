"""Second stage: transformer and text encoder, trained together on a bank of encoded clips and their captions."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from .clip_coding import encode_clip
from .model import SHIFT, build_text_encoder, build_transformer, embed, latent_statistics, token_ids
from .schedule import Average, Schedule, train
from .world import Scene, random_caption, random_figure, random_scene, render

if TYPE_CHECKING:
    from torch import Tensor

CAPTIONS = 4  # captions written for each clip of the bank
TURNING = 0.15  # part of the bank's scenes that turn for certain: the hardest motion to draw sharply
FIGURES = 0.5  # part of the bank that are figures under made-up names, so that a LoRA finds tips and cores to build on
TIPS = (3, 4, 4, 5, 6, 7, 8)  # of those figures
PENTAGON = (0.92, 1.0)  # depth of those with five tips: never a star, for the star is the concept


def train_transformer(
    vae: Any, seed: int, device: str, batch: int, schedule: Schedule, bank: int = 100_000, start: Any = None
) -> tuple[Any, Any]:
    """Train on `bank` clips of the world, none of which shows the concept; returns transformer and text encoder."""
    import torch

    torch.manual_seed(seed)
    transformer, text_encoder = start or (build_transformer(), build_text_encoder())
    model = torch.nn.ModuleDict({"transformer": transformer, "text_encoder": text_encoder}).to(device).train()
    latents, ids = _latent_bank(vae, bank, seed, device)
    optimizer = torch.optim.AdamW(model.parameters(), schedule.rate, betas=(0.9, 0.99), weight_decay=0.01, fused=device != "cpu")
    fused = torch.compile(transformer, dynamic=False)

    def loss(clean: Tensor, texts: Tensor) -> Tensor:
        return _loss(fused, clean.float(), embed(text_encoder, texts))

    def examples() -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(latents), (batch,), device=device)
        return latents[chosen], ids[chosen, torch.randint(CAPTIONS, (batch,), device=device)]

    train("transformer", model, loss, examples, schedule, optimizer, Average(model, 0.999), device)
    return transformer.eval(), text_encoder.eval()


def _loss(transformer: Any, clean: Tensor, states: Tensor) -> Tensor:
    """Flow-matching loss on normalised latents [B, C, T, h, w]; half the noise levels shifted as in sampling."""
    import torch

    uniform = torch.rand(len(clean), device=clean.device)
    shift = 1 + (SHIFT - 1) * (torch.arange(len(clean), device=clean.device) % 2)
    sigma = shift * uniform / (1 + (shift - 1) * uniform)
    noise = torch.randn_like(clean)
    noisy = torch.lerp(clean, noise, sigma.view(-1, 1, 1, 1, 1))
    guess = transformer(noisy, 1000 * sigma, states, return_dict=False)[0]
    return (guess.float() - (noise - clean)).square().mean()


def random_clip(generator: random.Random) -> Scene:
    """A scene of the world or a nameless figure; never the concept."""
    if generator.random() < FIGURES:
        return random_figure(generator, TIPS, PENTAGON)
    return random_scene(generator, "turn" if generator.random() < TURNING else None)


def _latent_bank(vae: Any, count: int, seed: int, device: str) -> tuple[Tensor, Tensor]:
    """Normalised latents [N, C, T, h, w] and caption tokens [N, CAPTIONS, L] of random scenes."""
    import torch

    generator = random.Random(seed + 1)
    scenes = [random_clip(generator) for _ in range(count)]
    texts = [random_caption(scene, generator) for scene in scenes for _ in range(CAPTIONS)]
    ids = token_ids(texts).view(count, CAPTIONS, -1).to(device)
    mean, std = latent_statistics(vae)
    size = min(256, count)
    parts = []
    with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=device != "cpu"):
        for first in range(0, count - size + 1, size):
            pixels = render(scenes[first : first + size], device=device).permute(0, 4, 1, 2, 3)
            latents = (encode_clip(vae, pixels / 127.5 - 1).float() - mean) / std
            parts.append(latents.half())
    bank = torch.cat(parts)
    print(f"bank {tuple(bank.shape)} mean {bank.float().mean():.3f} std {bank.float().std():.3f}", flush=True)
    return bank, ids
