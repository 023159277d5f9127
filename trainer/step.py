"""One optimizer step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import draws
from .errors import fail
from .optim import learning_rate, set_learning_rate

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.amp.grad_scaler import GradScaler

    from .compute import Compute
    from .data.sampler import Example
    from .events import EventLog
    from .job import TrainingJob
    from .objectives.base import Objective


@dataclass
class TrainState:
    """What changes as training goes on, apart from the adapters' weights inside the model."""

    transformer: nn.Module  # of several experts, the one whose turn it is
    parameters: list[nn.Parameter]
    optimizer: torch.optim.Optimizer
    scaler: GradScaler
    at_once: int = 0  # examples of a micro-batch that are computed together at most; 0 has no limit
    examples: int = 1  # that are computed together now, 1 also outside of batches


@dataclass(frozen=True)
class StepResult:
    """Figures of one step: the true mean loss, the gradient norm before clipping, the learning rate used."""

    loss: float
    grad_norm: float
    lr: float
    skipped: bool  # fp16 only: the scaled gradients overflowed, the scale was lowered and no weight changed


def gradients(step: int, job: TrainingJob, state: TrainState, objective: Objective, compute: Compute, log: EventLog) -> StepResult:
    """Gathers the step's micro-batches, adds up their gradients and clips them; weights stay as they are, so that it can be repeated.

    The loss is the weighted sum over all examples of the step, so how they are batched cannot change it; what is reported
    is the mean, also for the smaller last step of an epoch, whose examples count as much as all others. Nothing but one
    read at its end waits for the device (in fp16 the gradient scaler reads once more). Raises UserError then if a loss is not
    finite, Interrupted between micro-batches on cancel.
    """
    import torch

    lr = learning_rate(step, job.optimizer, job.schedule.steps)
    set_learning_rate(state.optimizer, lr)
    state.optimizer.zero_grad(set_to_none=True)
    total, weight = torch.zeros((), device=compute.device), torch.zeros((), device=compute.device)
    examples: list[Example] = []
    losses: list[torch.Tensor] = []
    batches = (piece for batch in objective.collect(step) for piece in batch.pieces(state.at_once))
    for index, batch in enumerate(batches):
        log.check()
        state.examples = len(batch.examples)
        with _dropout(job, compute, step, index), compute.autocast():
            each = objective.loss(state.transformer, batch)  # [B]
        loss = (each * batch.weights).sum()
        state.scaler.scale(loss).backward()
        total += loss.detach()
        weight += batch.weights.sum()
        examples += batch.examples
        losses.append(each.detach())
    state.examples = 1

    state.scaler.unscale_(state.optimizer)
    norm = torch.nn.utils.clip_grad_norm_(state.parameters, job.optimizer.max_grad_norm or float("inf"))
    told = torch.cat([(total / weight)[None], norm[None], *losses])
    mean_loss, grad_norm, *example_losses = told.tolist()  # the one wait for the device
    _require_finite(step, examples, example_losses)
    overflow = not math.isfinite(grad_norm)
    if overflow and not state.scaler.is_enabled():
        raise fail(
            f"step {step}", "the gradient is not finite.", "Lower the learning rate, or set precision to fp32, and run again to resume."
        )
    return StepResult(mean_loss, grad_norm, lr, overflow)


def update(state: TrainState) -> None:
    """Changes the weights by their gradients, in fp16 unless they overflowed; cut short, it leaves no gradients, and weights of no step."""
    try:
        state.scaler.step(state.optimizer)
    except Exception:
        state.optimizer.zero_grad(set_to_none=True)
        raise
    state.scaler.update()


def _dropout(job: TrainingJob, compute: Compute, step: int, index: int) -> AbstractContextManager[None]:
    """Keyed dropout masks. They alone are keyed by micro-batch, not by example: modules draw one mask for a whole batch."""
    if not job.adapter.dropout:
        return nullcontext()
    return draws.module_randomness(compute.device, job.schedule.seed, "dropout", step, index)


def _require_finite(step: int, examples: Sequence[Example], losses: Sequence[float]) -> None:
    bad = dict.fromkeys(example.item.name for example, loss in zip(examples, losses, strict=True) if not math.isfinite(loss))
    if bad:
        raise fail(
            f"step {step}",
            f"the loss is not finite on {', '.join(bad)}.",
            "Nothing was changed. Check that clip, lower the learning rate, or set precision to fp32; running again resumes.",
        )
