"""The cheapest changes of a job that would make it fit into a card."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from .card import GB
from .choices import Choices
from .choosing import Candidate, Limits, chosen, taken
from .prediction import Micro, Predictor
from .step_time import told

if TYPE_CHECKING:
    from ..job import ComputeSettings, MemorySettings

SHOWN = 3


@dataclass(frozen=True)
class Change:
    """What to change, in words, and what the job then comes to."""

    text: str
    candidate: Candidate

    def __str__(self) -> str:
        prediction = self.candidate.prediction
        return f"{self.text} ({taken(prediction.peak) / GB:.1f} GB, {told(prediction.seconds)} s a step)"


def cheapest(
    predictor: Predictor, memory: MemorySettings, compute: ComputeSettings, limits: Limits, size: tuple[int, int, int]
) -> list[Change]:
    """The first three that fit: settings that cost only time or exactness, then fewer frames and smaller frames.

    Smaller batches would not help, as they are split where that makes them fit. `size` is frames, height and width of the largest bucket.
    """
    found: list[Change] = []
    for text, changed, settings in _changes(predictor, memory, size):
        candidate = chosen(changed, settings, compute, limits)
        if candidate:
            found.append(Change(text, candidate))
        if len(found) == SHOWN:
            break
    return found


def _changes(predictor: Predictor, memory: MemorySettings, size: tuple[int, int, int]) -> Iterator[tuple[str, Predictor, MemorySettings]]:
    automatic = {"gradient_checkpointing": "auto", "layer_offload_fraction": -1.0, "weights": "auto"}
    for name, value in automatic.items():
        if getattr(memory, name) != value:
            shown = "auto" if value == -1.0 else value
            yield f"memory.{name}={shown}", predictor, memory.model_copy(update={name: value})
    if memory != (free := memory.model_copy(update=automatic)):
        yield f"{', '.join(f'memory.{name}' for name in automatic)} at auto", predictor, free
    batch = predictor.largest(Choices()).batch
    for changed in sorted(_sizes(predictor, size), key=prod, reverse=True):
        micro = micro_of(predictor, changed, batch)
        yield f"buckets of {micro.name}", replace(predictor, micros=[micro]), free


def _sizes(predictor: Predictor, size: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """Fewer frames, smaller frames, and both."""
    spec, (frames, height, width) = predictor.family.spec, size
    fewer = [spec.frame_rule.floor(int(frames * share)) for share in (1, 0.75, 0.5, 0.25)]
    smaller = [size[1:], *(spec.size_near(height * share, width * share) for share in (0.75, 0.5))]
    found = [(count, *size[1:]) for count in fewer] + [(frames, *area) for area in smaller] + [(fewer[-1], *smaller[-1])]
    return [changed for changed in dict.fromkeys(found) if changed != size]


def micro_of(predictor: Predictor, size: tuple[int, int, int], batch: int) -> Micro:
    """A micro-batch of another size than the clips have."""
    from .examples import shapes_at

    return Micro(shapes_at(predictor.family, size), batch, 1.0, "x".join(map(str, size)))
