"""Flow matching: the model learns the velocity from data to noise (Lipman et al. 2023; rectified flow, Liu et al. 2023)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .. import draws
from .base import MicroBatch
from .noise_levels import draw_sigma

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from ..data.dataset import TrainingData
    from ..data.sampler import Example, Sampler
    from ..job import TrainingJob
    from ..models.base import ModelFamily


class FlowMatching:
    """Collects a step's examples from the cache and compares predicted with true velocity."""

    def __init__(self, job: TrainingJob, family: ModelFamily, dataset: TrainingData, sampler: Sampler, device: torch.device) -> None:
        self.job, self.family, self.dataset, self.sampler, self.device = job, family, dataset, sampler, device
        self.shift = job.objective.shift or family.spec.train_shift

    def collect(self, step: int) -> Iterator[MicroBatch]:
        """The micro-batches of optimizer step `step` (1-based), each moved to the device when it is needed."""
        return (self._micro_batch(examples) for examples in self.sampler.plan(step).micro_batches)

    def loss(self, transformer: nn.Module, batch: MicroBatch) -> Tensor:
        """Mean squared error of the velocity for each example, [B], in the latents' precision (float32)."""
        inputs = self.family.model_inputs({"latents": batch.latents}, batch.text, batch.noise, batch.sigma)
        error = (self.family.predict(transformer, inputs).to(inputs.target.dtype) - inputs.target).square()
        if inputs.loss_mask is None:
            return error.flatten(1).mean(1)
        mask = inputs.loss_mask.expand_as(error)
        return (error * mask).flatten(1).sum(1) / mask.flatten(1).sum(1)

    def _micro_batch(self, examples: Sequence[Example]) -> MicroBatch:
        import torch

        latents = torch.stack([self.dataset.latents(e.item, e.window)["latents"] for e in examples])
        texts = [self.dataset.text(self._caption(e)) for e in examples]
        seed = self.job.schedule.seed
        noise = torch.stack([draws.normal(tuple(latents.shape[1:]), seed, "noise", e.epoch, e.position, e.window) for e in examples])
        sigma = torch.stack([draw_sigma(self.job.objective, self.shift, seed, "sigma", e.epoch, e.position, e.window) for e in examples])
        weights = torch.tensor([e.weight for e in examples])
        text = {name: tensor.to(self.device) for name, tensor in self.family.text_inputs(texts).items()}
        latents, noise, sigma, weights = (t.to(self.device) for t in (latents, noise, sigma, weights))
        return MicroBatch(latents, text, noise, sigma, weights, examples)

    def _caption(self, example: Example) -> str:
        seed, key, captions = self.job.schedule.seed, (example.epoch, example.position, example.window), example.item.captions
        if draws.uniform(seed, "caption", *key) < self.job.captions.dropout:
            return ""
        return captions[draws.choice(len(captions), seed, "which caption", *key)]
