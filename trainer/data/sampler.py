"""Which examples each optimizer step trains: stateless, so that any step can be asked for at any time.

An epoch visits every clip `repeats` times in a keyed order. Its visits form groups of G = batch size × accumulation,
one per step: full groups of one size first, then what is left of all sizes joined, and the groups are shuffled. Only
one group of an epoch can be smaller than G. The step's loss is the sum of weight · loss over its examples, with
weight 1/G (or 1/visits if the epoch has fewer than G), so every visit counts the same over an epoch, also in the
smaller group; a clip's own weight, divided by the mean over the epoch's visits, multiplies it. Groups depend on G
alone: 4 × 1 and 1 × 4 see the same examples. Micro-batches never mix sizes, nor the first section of a clip with the
second of another. Several ranks share a step: each takes every so many of its examples, of all sizes in turn, so that
step, draws and the sum of the weights stay those of one rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import fsum
from typing import Protocol, TypeVar

from .. import draws
from ..job import Bucket, ScheduleSettings, WindowSettings
from .dataset import Item
from .windows import chosen_windows

T = TypeVar("T")
Kind = tuple[Bucket, int]  # the size of an example, and the number of its section in the clip


@dataclass(frozen=True)
class Example:
    """One latent to train on. Draws for it are keyed (seed, purpose, epoch, position, window)."""

    item: Item
    window: int
    weight: float
    position: int  # of the visit in the dataset's stable order, repeats counted
    epoch: int

    @property
    def kind(self) -> Kind:
        """What a batch has in common."""
        return _kind(self.item, self.window)


@dataclass(frozen=True)
class StepPlan:
    """A rank's micro-batches of one optimizer step, none if there are more ranks than examples; each holds examples of one kind."""

    step: int
    epoch: int
    micro_batches: tuple[tuple[Example, ...], ...]

    @property
    def examples(self) -> list[Example]:
        """All examples of the step."""
        return [example for batch in self.micro_batches for example in batch]

    @property
    def weight(self) -> float:
        """Sum of the weights: the mean loss is the weighted sum divided by it."""
        return sum(example.weight for example in self.examples)


class Trainable(Protocol):
    """What of a dataset the sampler needs."""

    @property
    def items(self) -> Sequence[Item]:
        """Clips in stable order, at least one."""
        ...

    @property
    def windows(self) -> WindowSettings | None:
        """How windows group."""
        ...


@dataclass(frozen=True)
class _Unit:
    """What the epoch's order is over: a visit of a clip with the windows seen in it, or a single window."""

    item: Item
    position: int
    windows: tuple[int, ...]
    weight: float  # of each window, before division by the group

    @property
    def kind(self) -> Kind:
        """What a batch of it has in common: where a clip is cut into sections, a unit is one of them."""
        return _kind(self.item, self.windows[0])


class Sampler:
    """Plans steps over a dataset's items; its window settings say how windows group, without them each item is one example.

    Clips of more than one frame are computed `video_batch_size` at a time; 0 is the batch size.
    """

    def __init__(
        self, dataset: Trainable, batch_size: int, accumulation: int, seed: int,
        *, video_batch_size: int = 0, rank: int = 0, world: int = 1,
    ) -> None:  # fmt: skip
        assert 0 <= rank < world
        windows = dataset.windows
        self._visits = [item for item in dataset.items for _ in range(item.repeats)]
        self._seed, self._rank, self._world = seed, rank, world
        self._batch_size, self._video_batch = batch_size, video_batch_size or batch_size
        self._per_clip = windows.per_clip if windows else 0
        self._independent = windows is not None and windows.grouping == "independent"
        self._windowed = windows is not None
        units = sum(map(self._units, self._visits))
        shares = fsum(item.weight * (self._units(item) if item.pieces else 1) for item in self._visits)
        self._scale = units / shares  # makes the mean weight of the units 1
        self.examples_per_epoch = units  # what the groups are made of: clips with the windows seen at a visit, or single windows
        self.group = min(batch_size * accumulation, units)
        self.steps_per_epoch = -(-units // self.group)
        self._groups = lru_cache(maxsize=2)(self._epoch_groups)

    @classmethod
    def scheduled(cls, dataset: Trainable, schedule: ScheduleSettings) -> Sampler:
        """The sampler of a job's schedule."""
        return cls(dataset, schedule.batch_size, schedule.accumulation, schedule.seed, video_batch_size=schedule.video_batch_size)

    def plan(self, step: int) -> StepPlan:
        """The step's examples; `step` counts from 1 over the whole run."""
        epoch, index = divmod(step - 1, self.steps_per_epoch)
        by_kind: dict[Kind, list[Example]] = {}
        for unit in self._groups(epoch)[index]:
            item = self._variant(unit, epoch)
            for window in unit.windows:
                by_kind.setdefault(_kind(item, window), []).append(Example(item, window, unit.weight / self.group, unit.position, epoch))
        if self._world > 1:
            by_kind = self._share(by_kind)
        batches = [
            tuple(batch)
            for (size, _), examples in by_kind.items()
            for batch in _chunks(examples, self._batch_size if size.frames == 1 else self._video_batch)
        ]
        return StepPlan(step, epoch, tuple(batches))

    def _share(self, by_kind: dict[Kind, list[Example]]) -> dict[Kind, list[Example]]:
        """This rank's examples."""
        mine: dict[Kind, list[Example]] = {}
        everything = [example for examples in by_kind.values() for example in examples]
        for example in everything[self._rank :: self._world]:
            mine.setdefault(example.kind, []).append(example)
        return mine

    def _variant(self, unit: _Unit, epoch: int) -> Item:
        """The clip with the variant of it that is seen at this visit."""
        item = unit.item
        if not item.variants:
            return item
        return item.variant(draws.choice(len(item.keys), self._seed, "which variant", epoch, unit.position))

    @property
    def effective_batch(self) -> str:
        """What one optimizer step averages over, such as "4 clips × 17 windows"."""
        if self._independent:
            return _count(self.group, "window")
        if not self._windowed:
            named = {"section": any(item.sections > 1 for item in self._visits), "piece": any(item.pieces for item in self._visits)}
            return _count(self.group, next((noun for noun, seen in named.items() if seen), "clip"))
        counts = {self._seen(item) for item in self._visits}
        least, most = min(counts), max(counts)
        return f"{_count(self.group, 'clip')} × " + (_count(most, "window") if least == most else f"{least} to {most} windows")

    def _seen(self, item: Item) -> int:
        """Windows seen at one visit."""
        return min(self._per_clip or item.windows, item.windows)

    def _units(self, item: Item) -> int:
        """Units of one visit."""
        return self._seen(item) if self._independent or item.pieces else 1

    def _epoch_groups(self, epoch: int) -> list[list[_Unit]]:
        units = list(self._epoch_units(epoch))
        by_kind: dict[Kind, list[_Unit]] = {}
        for place in draws.permutation(len(units), self._seed, "order", epoch):
            by_kind.setdefault(units[place].kind, []).append(units[place])
        full, rest = [], []
        for kind in sorted(by_kind, key=lambda kind: (str(kind[0]), kind[1])):
            whole = len(by_kind[kind]) // self.group * self.group
            full += _chunks(by_kind[kind][:whole], self.group)
            rest += by_kind[kind][whole:]
        groups = full + _chunks(rest, self.group)
        return [groups[place] for place in draws.permutation(len(groups), self._seed, "steps", epoch)]

    def _epoch_units(self, epoch: int) -> Iterable[_Unit]:
        """The epoch's units in stable order, their mean weight 1; a clip's windows share its weight, pieces have it each."""
        for position, item in enumerate(self._visits):
            weight = item.weight * self._scale
            windows = chosen_windows(item.windows, self._per_clip, self._seed, epoch, position)
            if item.pieces or self._independent:
                for window in windows:
                    yield _Unit(item, position, (window,), weight if item.pieces else weight / len(windows))
            else:
                yield _Unit(item, position, tuple(windows), weight / len(windows))


def _kind(item: Item, window: int) -> Kind:
    return item.size, window % item.sections


def _chunks(values: list[T], size: int) -> list[list[T]]:
    return [values[start : start + size] for start in range(0, len(values), size)]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
