"""What the demo's LoRA learned: samples judged by the checker, and the loss on held-out clips."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import draws
from ..job import ComputeSettings
from ..objectives.noise_levels import sampling_sigmas
from ..sampling import SampleRequest, VideoSampler, denoise, serving, start_noise
from . import checker, world

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

BATCH = 10  # videos drawn together
STEPS = 20
LOSS_SIGMAS = (0.3, 0.5, 0.7, 0.9)
CIRCLE = "a red circle"


@dataclass(frozen=True)
class Scores:
    """Shares in [0, 1] over `count` samples a group."""

    count: int
    star_with: float  # concept prompts, LoRA on: a star is seen
    star_without: float  # the same prompts and seeds, LoRA off
    circle_kept: float  # "a red circle" with the LoRA on is still one

    def __str__(self) -> str:
        return (
            f"zorp prompts: star seen in {self.star_with:.0%} of samples with the LoRA, {self.star_without:.0%} without; "
            f"'{CIRCLE}' with the LoRA is a red circle in {self.circle_kept:.0%} ({self.count} samples each)"
        )

    def as_dict(self) -> dict[str, float]:
        """The figures as JSON-ready dict."""
        return asdict(self)


class Examiner:
    """The demo model with or without a LoRA that can be switched off, drawing many videos at once."""

    def __init__(self, model: Path, lora: Path | None = None, device: str = "auto") -> None:
        exact = ComputeSettings(device=device, dtype="fp32")  # as its losses are compared
        self.sampler = VideoSampler(model, exact, {"": lora} if lora else None)
        self.sampler.attach()
        self.family = self.sampler.family

    def draw(self, prompts: Sequence[str], seeds: Sequence[int], strength: float = 1.0) -> list[np.ndarray]:
        """One video [F, H, W, 3] uint8 for each prompt and seed."""
        frames, spec = [], self.family.spec
        with self._strength(strength):
            for start in range(0, len(prompts), BATCH):
                requests = [
                    SampleRequest(prompt, *spec.default_bucket, seed=seed)
                    for prompt, seed in zip(prompts[start : start + BATCH], seeds[start : start + BATCH], strict=True)
                ]
                frames += [frame.numpy() for frame in self._draw(requests)]
        return frames

    def _draw(self, requests: list[SampleRequest]) -> Iterator[Tensor]:
        import torch

        family, components, spec = self.family, self.sampler.components, self.family.spec
        device = components.compute.device
        text = self._texts([request.prompt for request in requests])
        noise = torch.cat([start_noise(spec, request) for request in requests]).to(device)
        sigmas = sampling_sigmas(STEPS, spec.sample_shift)
        negative = self._texts([""] * len(requests))
        latents = denoise(family, serving(components), noise, sigmas, text, negative, spec.guidance)
        return (family.decode_video(components.vae(), latent[None]) for latent in latents)

    def _texts(self, prompts: list[str]) -> dict[str, Tensor]:
        device = self.sampler.components.compute.device
        return {k: v.to(device) for k, v in self.family.text_inputs([self.sampler.text(prompt) for prompt in prompts]).items()}

    @contextmanager
    def _strength(self, strength: float) -> Iterator[None]:
        with ExitStack() as stack:
            for lora in self.sampler.loras:
                stack.enter_context(lora.at_strength(strength))
            yield

    def loss(self, scenes: Sequence[world.Scene], strength: float, noises: int = 8) -> float:
        """Mean loss on rendered scenes at fixed noise levels and noises."""
        import torch

        family, components = self.family, self.sampler.components
        device, losses = components.compute.device, []
        with torch.no_grad(), self._strength(strength):
            for number, scene in enumerate(scenes):
                latents = family.encode_video(components.vae(), world.render([scene])[0])["latents"]
                latents = latents[None].to(device).repeat(noises, 1, 1, 1, 1)
                text = self._texts([world.caption(scene)] * noises)
                noise = torch.stack([draws.normal(tuple(latents.shape[1:]), "demo loss", number, n) for n in range(noises)]).to(device)
                for sigma in LOSS_SIGMAS:
                    inputs = family.model_inputs({"latents": latents}, text, noise, torch.full((noises,), sigma, device=device))
                    losses.append((family.predict(components.transformer(), inputs) - inputs.target).square().mean().item())
        return sum(losses) / len(losses)


def held_out(count: int, seed: int = 10_000) -> list[world.Scene]:
    """Concept scenes that no demo clip shows."""
    generator = random.Random(seed)
    return [world.random_concept(generator) for _ in range(count)]


def score(examiner: Examiner, count: int, seed: int = 10_000) -> Scores:
    """Draws and judges `count` samples a group, each of its own prompt and seed."""
    prompts = [world.caption(scene) for scene in held_out(count, seed)]
    seeds = [seed + number for number in range(count)]
    with_lora, without = (examiner.draw(prompts, seeds, strength) for strength in (1.0, 0.0))
    circles = [checker.score(frames, CIRCLE) for frames in examiner.draw([CIRCLE] * count, seeds, 1.0)]
    return Scores(
        count,
        sum(map(checker.is_star, with_lora)) / count,
        sum(map(checker.is_star, without)) / count,
        sum(verdict.colour and verdict.shape for verdict in circles) / count,
    )
