"""Flow matching: the model learns the velocity from data to noise (Lipman et al. 2023; rectified flow, Liu et al. 2023)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .. import draws
from ..experts import expert_at, trained_experts
from .base import MicroBatch
from .noise_levels import draw_sigma_within, min_snr_weight

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from ..data.dataset import TrainingData
    from ..data.sampler import Example, Sampler
    from ..job import TrainingJob
    from ..models.base import Expert, ModelFamily


class FlowMatching:
    """Collects a step's examples from the cache and compares predicted with true velocity."""

    def __init__(self, job: TrainingJob, family: ModelFamily, dataset: TrainingData, sampler: Sampler, device: torch.device) -> None:
        self.job, self.family, self.dataset, self.sampler, self.device = job, family, dataset, sampler, device
        self._experts = trained_experts(family.spec, job.model.expert)

    def collect(self, step: int) -> Iterator[MicroBatch]:
        """The micro-batches of optimizer step `step` (1-based), each moved to the device when it is needed."""
        expert = expert_at(step, self._experts, self.job.schedule.switch_every)
        return (self._micro_batch(examples, expert) for examples in self.sampler.plan(step).micro_batches)

    def loss(self, transformer: nn.Module, batch: MicroBatch) -> Tensor:
        """Mean squared error of the velocity for each example, [B], in the latents' precision (float32)."""
        inputs = self.family.model_inputs(batch.encoded, batch.text, batch.noise, batch.sigma)
        error = (self.family.predict(transformer, inputs).to(inputs.target.dtype) - inputs.target).square()
        if inputs.loss_mask is None:
            losses = error.flatten(1).mean(1)
        else:
            mask = inputs.loss_mask.expand_as(error)
            losses = (error * mask).flatten(1).sum(1) / mask.flatten(1).sum(1)
        gamma = self.job.objective.snr_gamma
        weight = min_snr_weight(batch.sigma, gamma) if gamma else self.family.loss_weight(batch.sigma)
        return losses if weight is None else losses * weight

    def _micro_batch(self, examples: Sequence[Example], expert: Expert) -> MicroBatch:
        import torch

        encoded = self.family.stack([self.dataset.latents(e.item, e.window) for e in examples])
        shape, keys = tuple(encoded["latents"].shape[1:]), [(e.epoch, e.position, e.window) for e in examples]
        texts = [self.dataset.text(self._caption(e), self.dataset.picture(e.item, e.window)) for e in examples]
        if self.family.spec.first_frame_optional:  # a single frame would be given as a whole
            chances = torch.tensor([draws.uniform(self._seed, "condition", *key) for key in keys])
            begins = (chances < self.job.objective.first_frame_probability) & (shape[1] > 1)
            if begins.any():
                encoded["has_first_frame"] = begins
            else:  # said here, on the host: a family that looked at what is on the device would wait for it
                del encoded["first_frame"]
        if self.family.spec.guidance_input is not None:
            encoded["guidance"] = torch.full((len(examples),), self.job.objective.guidance or self.family.spec.guidance_input)
        if self.job.objective.history_noise and "history" in encoded:
            encoded |= self._drift(encoded["history"].shape[1:], keys)
        noise = torch.stack([draws.normal(shape, self._seed, "noise", *key) for key in keys])
        sigma = torch.stack([self._sigma(shape, expert, *key) for key in keys])
        weights = torch.tensor([e.weight for e in examples])
        text, encoded = (self._placed(tensors) for tensors in (self.family.text_inputs(texts), encoded))
        noise, sigma, weights = (t.to(self.device) for t in (noise, sigma, weights))
        return MicroBatch(encoded, text, noise, sigma, weights, examples)

    def _drift(self, shape: Sequence[int], keys: Sequence[tuple[int, ...]]) -> dict[str, Tensor]:
        """The noise that stands for what is wrong with a history that a model made, and its share in each example."""
        import torch

        most = self.job.objective.history_noise
        return {
            "drift": torch.stack([draws.normal(tuple(shape), self._seed, "drift", *key) for key in keys]),
            "drift_level": torch.tensor([most * draws.uniform(self._seed, "drift level", *key) for key in keys]),
        }

    @property
    def _seed(self) -> int:
        return self.job.schedule.seed

    def _sigma(self, shape: Sequence[int], expert: Expert, *key: int) -> Tensor:
        """A noise level that the expert serves, for latents of a shape."""
        objective = self.job.objective
        shift = objective.shift or self.family.shift(shape, sampling=False)
        return draw_sigma_within(expert.low, expert.high, objective, shift, self.family.noise_level, self._seed, "sigma", *key)

    def _placed(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor.to(self.device) for name, tensor in tensors.items()}

    def _caption(self, example: Example) -> str:
        seed, key, captions = self._seed, (example.epoch, example.position, example.window), example.item.captions_of(example.window)
        if draws.uniform(seed, "caption", *key) < self.job.captions.dropout:
            return ""
        return captions[draws.choice(len(captions), seed, "which caption", *key)]
