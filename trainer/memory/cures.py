"""The cheapest changes of a job that would make it fit into a card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .card import GB
from .choosing import Candidate, Limits, chosen, taken
from .prediction import Micro, Predictor

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
        return f"{self.text} ({taken(prediction.peak) / GB:.1f} GB, {prediction.seconds:.2g} s a step)"


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
    batch = predictor.largest.batch
    smaller = [number for number in (batch // 2, 1) if 0 < number < batch]
    for number in dict.fromkeys(smaller):
        yield f"batch size {number}", _with(predictor, [replace(predictor.largest, batch=number, share=1.0)]), free
    spec, (frames, height, width) = predictor.family.spec, size
    sizes: list[tuple[int, int, int]] = []
    for share in (0.75, 0.5, 0.25):
        sizes.append((spec.frame_rule.floor(int(frames * share)), height, width))
    for share in (0.75, 0.5):
        sizes.append((frames, *spec.size_near(height * share, width * share)))
    sizes.append((spec.frame_rule.floor(frames // 4), *spec.size_near(height / 2, width / 2)))
    for changed in dict.fromkeys(sizes):
        if changed != size:
            micros = [micro_of(predictor, changed, batch)]
            yield f"buckets of {'x'.join(map(str, changed))}", _with(predictor, micros), free


def micro_of(predictor: Predictor, size: tuple[int, int, int], batch: int) -> Micro:
    """A micro-batch of another size than the clips have."""
    from .examples import shapes_at

    return Micro(shapes_at(predictor.family, size), batch, 1.0, "x".join(map(str, size)))


def _with(predictor: Predictor, micros: Sequence[Micro]) -> Predictor:
    return replace(predictor, micros=micros, rehearsed={})
