"""The cheapest changes of a job that would make it fit into a card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from .card import GB
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
    """The first three that fit: settings that cost only time or exactness, then smaller batches, fewer frames and smaller frames.

    `size` is frames, height and width of the largest bucket.
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
            shown = "auto (-1)" if value == -1.0 else value
            yield f"memory.{name}={shown}", predictor, memory.model_copy(update={name: value})
    if memory != (free := memory.model_copy(update=automatic)):
        yield f"{', '.join(f'memory.{name}' for name in automatic)} at auto", predictor, free
    own = predictor.largest.batch
    batches = [own, *dict.fromkeys(number for number in (own // 2, 1) if 0 < number < own)]
    pairs = [(batch, changed) for batch in batches for changed in _sizes(predictor, size)]
    pairs.sort(key=lambda pair: ((pair[0] != own) + (pair[1] != size), pair[1] != size, -pair[0] * prod(pair[1])))
    for batch, changed in pairs[1:]:  # the first is what there is
        said = [f"batch size {batch}"] * (batch != own) + [f"buckets of {'x'.join(map(str, changed))}"] * (changed != size)
        micro = replace(predictor.largest, batch=batch, share=1.0) if changed == size else micro_of(predictor, changed, batch)
        yield " and ".join(said), _with(predictor, [micro]), free


def _sizes(predictor: Predictor, size: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """The size, fewer frames of it, smaller frames, and both."""
    spec, (frames, height, width) = predictor.family.spec, size
    fewer = [spec.frame_rule.floor(int(frames * share)) for share in (1, 0.75, 0.5, 0.25)]
    smaller = [size[1:], *(spec.size_near(height * share, width * share) for share in (0.75, 0.5))]
    found = [(count, *size[1:]) for count in fewer] + [(frames, *area) for area in smaller] + [(fewer[-1], *smaller[-1])]
    return list(dict.fromkeys([size, *found]))


def micro_of(predictor: Predictor, size: tuple[int, int, int], batch: int) -> Micro:
    """A micro-batch of another size than the clips have."""
    from .examples import shapes_at

    return Micro(shapes_at(predictor.family, size), batch, 1.0, "x".join(map(str, size)))


def _with(predictor: Predictor, micros: Sequence[Micro]) -> Predictor:
    return replace(predictor, micros=micros, rehearsed={})
