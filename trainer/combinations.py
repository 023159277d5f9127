"""Settings that exclude each other: one table, looked through before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import Problem
from .optimizer_kinds import own_name

if TYPE_CHECKING:
    from .job import TrainingJob


@dataclass(frozen=True)
class Combination:
    """Settings whose values cannot go together when `excluded` says so, why, and what to do.

    `way_out` is the setting and its value that a job gets which nobody can be asked about: of the cures the one that changes
    least of what is learned.
    """

    settings: tuple[str, ...]
    excluded: Callable[[TrainingJob], bool]
    why: str
    cure: str
    way_out: tuple[str, Any]


LOW_FACTOR = 0.01  # a learning rate below it is none for an optimizer that multiplies its own rate by it
FOUND_RATE = "finds the rate by itself and multiplies it by this one, so that nothing would be learned"
_ON_HOST = "gradients go to the host while they are computed"
_NAMED = "a class of pytorch_optimizer is named if, and only if, the optimizer is other"
_NAME = "Set optimizer.name to other and optimizer.other to the name of the class, or leave that empty."
_NOT_OFFLOADED = ("optimizer.offload_state", False)

ILLEGAL = (
    Combination(
        ("optimizer.offload_state", "optimizer.max_grad_norm"),
        lambda job: job.optimizer.offload_state and job.optimizer.max_grad_norm > 0,
        f"{_ON_HOST}, before the norm of all is known that clipping needs",
        "Set optimizer.max_grad_norm to 0, or optimizer.offload_state to false.",
        _NOT_OFFLOADED,
    ),
    Combination(
        ("optimizer.offload_state", "schedule.accumulation"),
        lambda job: job.optimizer.offload_state and job.schedule.accumulation > 1,
        f"{_ON_HOST}, so that each batch would send all of them again",
        "Set schedule.accumulation to 1, or optimizer.offload_state to false.",
        _NOT_OFFLOADED,
    ),
    Combination(
        ("optimizer.offload_state", "compute.dtype"),
        lambda job: job.optimizer.offload_state and job.compute.dtype == "fp16",
        f"{_ON_HOST}, before it is known whether fp16 overflowed and the step must be skipped",
        "Set compute.dtype to bf16 or fp32, or optimizer.offload_state to false.",
        _NOT_OFFLOADED,
    ),
    Combination(
        ("optimizer.offload_state", "optimizer.name"),
        lambda job: job.optimizer.offload_state and job.optimizer.name != "AdamW",
        "only AdamW's state is offloaded",
        "Set optimizer.name to AdamW, or optimizer.offload_state to false.",
        _NOT_OFFLOADED,
    ),
    Combination(
        ("optimizer.offload_state", "adapter.precision"),
        lambda job: job.optimizer.offload_state and job.adapter.precision != "fp32",
        "the copy on the host would be rounded to the nearest, and small steps lost",
        "Set adapter.precision to fp32, or optimizer.offload_state to false.",
        _NOT_OFFLOADED,
    ),
    Combination(
        ("optimizer.name", "optimizer.lora_plus_ratio"),
        lambda job: own_name(job.optimizer) == "Prodigy" and job.optimizer.lora_plus_ratio != 1,
        "Prodigy finds one rate for all matrices",
        "Set optimizer.lora_plus_ratio to 1, or choose another optimizer.",
        ("optimizer.lora_plus_ratio", 1.0),
    ),
    Combination(
        ("optimizer.name", "optimizer.learning_rate"),
        lambda job: own_name(job.optimizer) == "Prodigy" and job.optimizer.learning_rate < LOW_FACTOR,
        f"Prodigy {FOUND_RATE}",
        "Set optimizer.learning_rate to 1.",
        ("optimizer.learning_rate", 1.0),
    ),
    Combination(
        ("optimizer.name", "optimizer.beta1"),
        lambda job: job.optimizer.name == "Schedule-free AdamW" and job.optimizer.beta1 == 0,
        "beta1 is how much of the average the trained weights hold, and none can be undone",
        "Set optimizer.beta1 to 0.9.",
        ("optimizer.beta1", 0.9),
    ),
    Combination(
        ("optimizer.name", "optimizer.other"),
        lambda job: job.optimizer.name == "other" and not job.optimizer.other.strip(),
        _NAMED,
        _NAME,
        ("optimizer.name", "AdamW"),
    ),
    Combination(
        ("optimizer.name", "optimizer.other"),
        lambda job: job.optimizer.name != "other" and bool(job.optimizer.other.strip()),
        _NAMED,
        _NAME,
        ("optimizer.other", ""),
    ),
)


def illegal(job: TrainingJob) -> list[Problem]:
    """A problem for each line of the table that the job falls under, with the settings, their values and the cure."""
    return [
        Problem(", ".join(line.settings), f"{_together([_value(job, name) for name in line.settings])}: {line.why}.", line.cure)
        for line in ILLEGAL
        if line.excluded(job)
    ]


def _value(job: TrainingJob, name: str) -> str:
    part, _, setting = name.partition(".")
    value: Any = getattr(getattr(job, part), setting)
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value) or "nothing"


def _together(values: list[str]) -> str:
    return f"{', '.join(values[:-1])} and {values[-1]} do not go together"


def without_effect(job: TrainingJob, device: str) -> list[tuple[str, str]]:
    """Settings that do nothing on "cpu" or another device without memory of its own, each with a text that says so."""
    if device == "cuda":
        return []
    told = {"memory.fit_into": job.memory.fit_into > 0, "optimizer.offload_state": job.optimizer.offload_state}
    return [(name, f"{name} is about a card's memory and does nothing on this device ({device}).") for name, given in told.items() if given]
