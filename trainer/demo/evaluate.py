"""Draws samples from the demo model with plain diffusers classes and grades them with the checker."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):  # run by its path
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    __package__ = "trainer.demo"

from trainer.demo.checker import is_star, score
from trainer.demo.model import FOLDER, SHIFT, STRIDES, DemoModel, encode_text, latent_statistics, load_model
from trainer.demo.world import FRAMES, SIZE, Scene, caption, random_concept, random_scene, render

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


def sigmas(steps: int, shift: float = SHIFT) -> list[float]:
    """Noise levels from 1 to 0, `steps` + 1 of them."""
    even = [1 - step / steps for step in range(steps + 1)]
    return [shift * value / (1 + (shift - 1) * value) for value in even]


def sample_latents(
    model: DemoModel, prompts: Sequence[str], steps: int = 16, guidance: float = 3.0, seed: int = 0, frames: int = FRAMES
) -> Tensor:
    """Euler steps with guidance against the empty caption; normalised latents [B, C, T, h, w]."""
    import torch

    device = next(model.transformer.parameters()).device
    shape = (model.transformer.config.in_channels, (frames - 1) // STRIDES[0] + 1, SIZE // STRIDES[1], SIZE // STRIDES[1])
    noise = [torch.randn(shape, generator=torch.Generator().manual_seed(seed + row)) for row in range(len(prompts))]
    latents = torch.stack(noise).to(device)
    levels = sigmas(steps)
    with torch.no_grad():
        states = encode_text(model, [*prompts, *[""] * len(prompts)])
        for sigma, following in zip(levels, levels[1:], strict=False):
            time = torch.full((2 * len(prompts),), 1000 * sigma, device=device)
            output = model.transformer(latents.repeat(2, 1, 1, 1, 1), time, states, return_dict=False)[0]
            wanted, empty = output.chunk(2)
            latents = latents + (following - sigma) * torch.lerp(empty, wanted, guidance)
    return latents


def decode(model: DemoModel, latents: Tensor) -> np.ndarray:
    """Frames [B, F, H, W, 3] uint8 of normalised latents."""
    import torch

    mean, std = latent_statistics(model.vae)
    with torch.no_grad():
        pixels = model.vae.decode(latents * std + mean).sample  # [B, 3, F, H, W]
    return _frames(pixels)


def encode(model: DemoModel, frames: Tensor) -> Tensor:
    """Normalised latents [B, C, T, h, w] of frames [B, F, H, W, 3] uint8."""
    import torch

    mean, std = latent_statistics(model.vae)
    with torch.no_grad():
        pixels = frames.to(mean.device).permute(0, 4, 1, 2, 3) / 127.5 - 1
        return (model.vae.encode(pixels).latent_dist.mode() - mean) / std


def sample(model: DemoModel, prompts: Sequence[str], steps: int = 16, guidance: float = 3.0, seed: int = 0, batch: int = 10) -> np.ndarray:
    """Draw one clip for each prompt, [B, F, H, W, 3] uint8."""
    import numpy as np

    parts = []
    for first in range(0, len(prompts), batch):
        latents = sample_latents(model, prompts[first : first + batch], steps, guidance, seed + first)
        parts.append(decode(model, latents))
    return np.concatenate(parts)


def grade_scenes(clips: np.ndarray, scenes: Sequence[Scene | str]) -> dict[str, float]:
    """Part of the clips [B, F, H, W, 3] with the right colour, shape and motion, and with all three."""
    verdicts = [score(clip, scene) for clip, scene in zip(clips, scenes, strict=True)]
    parts = {name: [getattr(verdict, name) for verdict in verdicts] for name in ("colour", "shape", "motion", "background")}
    parts["all"] = [bool(verdict) for verdict in verdicts]
    return {name: sum(values) / len(values) for name, values in parts.items()}


def grade_world(model: DemoModel, count: int = 100, seed: int = 1000, **sampling: Any) -> dict[str, float]:
    """Grade samples of `count` full captions of the world."""
    generator = random.Random(seed)
    scenes = [random_scene(generator) for _ in range(count)]
    return grade_scenes(sample(model, [caption(scene) for scene in scenes], seed=seed, **sampling), scenes)


def star_rate(model: DemoModel, count: int = 40, seed: int = 2000, **sampling: Any) -> float:
    """Part of the samples of zorp captions that show a star."""
    generator = random.Random(seed)
    prompts = [caption(random_concept(generator)) for _ in range(count)]
    return sum(map(is_star, sample(model, prompts, seed=seed, **sampling))) / count


def kept_rate(model: DemoModel, prompt: str = "a red circle", count: int = 20, seed: int = 3000, **sampling: Any) -> float:
    """Part of the samples of one prompt that show its colour and shape."""
    verdicts = [score(clip, prompt) for clip in sample(model, [prompt] * count, seed=seed, **sampling)]
    return sum(verdict.colour and verdict.shape for verdict in verdicts) / count


def concept_loss(model: DemoModel, count: int = 12, seed: int = 4000, levels: Sequence[float] = (0.3, 0.5, 0.7, 0.9)) -> dict[float, float]:
    """Flow-matching loss on held-out concept clips at fixed noise levels, with fixed noise."""
    import torch

    generator = random.Random(seed)
    scenes = [random_concept(generator) for _ in range(count)]
    clean = encode(model, render(scenes))
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(seed)).to(clean)
    losses = {}
    with torch.no_grad():
        states = encode_text(model, [caption(scene) for scene in scenes])
        for level in levels:
            time = torch.full((count,), 1000 * level, device=clean.device)
            output = model.transformer(torch.lerp(clean, noise, level), time, states, return_dict=False)[0]
            losses[level] = (output - (noise - clean)).square().mean().item()
    return losses


def reconstruction_psnr(model: DemoModel, scenes: Sequence[Scene]) -> list[float]:
    """PSNR in dB of each scene's clip through encoder and decoder."""
    import numpy as np
    import torch

    values = []
    for scene in scenes:
        frames = render([scene])
        again = decode(model, encode(model, frames))
        error = np.square(again.astype(np.float32) - frames.numpy()).mean()
        values.append(float(10 * torch.log10(torch.tensor(255.0**2 / max(error, 1e-6)))))
    return values


def psnr(model: DemoModel, count: int = 20, seed: int = 5000, draw: Callable[..., Scene] = random_scene) -> dict[str, float]:
    """Mean and worst PSNR in dB of held-out clips."""
    generator = random.Random(seed)
    values = reconstruction_psnr(model, [draw(generator) for _ in range(count)])
    return {"mean": sum(values) / count, "worst": min(values)}


def _frames(pixels: Tensor) -> np.ndarray:
    """Pixels [B, 3, F, H, W] in -1..1 as uint8 frames [B, F, H, W, 3]."""
    import torch

    return ((pixels.permute(0, 2, 3, 4, 1) + 1) * 127.5).round().clamp(0, 255).to(torch.uint8).cpu().numpy()


def main() -> None:
    """Print all figures of a model folder as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--count", type=int, default=100, help="samples of the world")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--guidance", type=float, default=3.0)
    options = parser.parse_args()
    model = load_model(options.folder)
    sampling = {"steps": options.steps, "guidance": options.guidance}
    report = {
        "psnr_world": psnr(model, 10),
        "psnr_zorp": psnr(model, 10, draw=random_concept),
        "world": grade_world(model, options.count, **sampling),
        "star_rate": star_rate(model, max(10, options.count // 3), **sampling),
        "red_circle": kept_rate(model, count=max(5, options.count // 5), **sampling),
        "concept_loss": concept_loss(model),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
