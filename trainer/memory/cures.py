"""The cheapest changes of a job that would make it fit into a card."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, islice
from typing import TYPE_CHECKING

from ..combinations import illegal
from .card import GB
from .changes import Change, Size, in_words, lower_ranks, slower, smaller_sizes, smaller_state, steps_here
from .choosing import Candidate, Limits, chosen, smallest, taken
from .examples import planned_micros
from .step_time import told

if TYPE_CHECKING:
    from ..job import TrainingJob
    from .prediction import Predictor

SHOWN = 3
MATTERS = 2  # times the LoRA and its optimizer is the most that changes of them save, with gradients and what its rank is kept in


@dataclass(frozen=True)
class Cure:
    """A change, and what the job then comes to."""

    change: Change
    candidate: Candidate

    def __str__(self) -> str:
        prediction = self.candidate.prediction
        return f"{in_words(self.change)} ({taken(prediction.peak) / GB:.1f} GB, {told(prediction.seconds)} s a step)"


def cheapest(predictor: Predictor, job: TrainingJob, limits: Limits, size: Size, say: Callable[[str], object]) -> list[Cure]:
    """The first three that fit of what costs time, then exactness, then what is learned; single changes before two together.

    `size` is that of the largest bucket. `say` hears which change is tried, before each rehearsal. Whether one fits is asked of
    the smallest way of computing it; only the three are then planned in full.
    """
    search = _Search(predictor, job, limits, size, say)
    return [search.cure(change) for change in islice(search.fitting(), SHOWN)]


class _Search:
    """Looks for changes that fit, in the order of what they cost."""

    def __init__(self, predictor: Predictor, job: TrainingJob, limits: Limits, size: Size, say: Callable[[str], object]) -> None:
        self.predictor, self.job, self.limits, self.say = predictor, job, limits, say
        self.times, self.states, self.ranks = slower(job), smaller_state(job), lower_ranks(job)
        self.sizes = smaller_sizes(job, predictor.family, size)
        self.free: Change = self.times[-1] if self.times else ()  # settings of memory at auto that are not
        self._known: dict[Change, bool] = {}

    def cure(self, change: Change) -> Cure:
        """A change that fits, planned in full."""
        job, predictor = self._changed(change)
        candidate = chosen(predictor, job.memory, job.compute, self.limits)
        assert candidate is not None, "the smallest way fits"
        return Cure(change, candidate)

    def fitting(self) -> Iterator[Change]:
        """Single changes, with settings of memory at auto where they must be; then two of which neither fits by itself."""
        yield from filter(self._fits, self.times)
        states, ranks = (self.states, self.ranks) if self._adapter_matters(self.free) else ([], [])
        others: list[Change] = []  # that do not make it fit by themselves
        for state in states:
            fitting = list(self._from_first([state]))
            yield from fitting
            others += [] if fitting else [state]
        yield from islice(self._from_first(ranks), 1)
        yield from self._from_first(self.sizes)
        for one, other in combinations(others, 2):
            yield from self._from_first([(*one, *other)])
        for other in others:
            yield from islice(self._from_first([(*other, *rank) for rank in self._failing(ranks)]), 1)
        if self.sizes and self._adapter_matters((*self.sizes[-1], *self.free)):
            lowest = [rank for rank in self.ranks[-1:] if not next(self._from_first([rank]), None)]
            for other in (*(others if states else self.states), *lowest):
                yield from islice(self._from_first([(*other, *size) for size in self._failing(self.sizes)]), 1)

    def _from_first(self, changes: Sequence[Change]) -> Iterator[Change]:
        """Of changes that each save more than the one before the first that fits, and those behind it."""
        more = next((more for more in dict.fromkeys(((), self.free)) if changes and self._fits((*changes[-1], *more))), None)
        if more is None:
            return
        whole = [(*change, *more) for change in changes]
        yield from filter(self._fits, whole[bisect_left(whole, True, key=self._fits) :])

    def _failing(self, changes: Sequence[Change]) -> Sequence[Change]:
        """Those before the first that fits."""
        return changes[: bisect_left(changes, True, key=lambda change: self._fits((*change, *self.free)))]

    def _fits(self, change: Change) -> bool:
        """Whether a change is allowed, makes the job fit, and needs nothing that is not here."""
        known = self._known.get(change)
        if known is None:
            job, _ = self._changed(change)
            known = not illegal(job) and self._least(change)[0] <= 0 and (job.optimizer == self.job.optimizer or steps_here(job))
            self._known[change] = known
        return known

    def _adapter_matters(self, change: Change) -> bool:
        """Whether so much is missing, after a change, as less of a LoRA and its optimizer could save."""
        excess, adapter = self._least(change)
        return excess <= MATTERS * adapter

    def _least(self, change: Change) -> tuple[float, int]:
        """Bytes that the smallest way takes above what it may after a change, and those of the LoRA and its optimizer."""
        job, predictor = self._changed(change)
        prediction = smallest(predictor, job.memory, job.compute, self.limits).prediction
        return taken(prediction.peak) - self.limits.card, prediction.adapter

    def _changed(self, change: Change) -> tuple[TrainingJob, Predictor]:
        predictor, job = self.predictor, self.job.overridden(list(change))
        micros = predictor.micros if job.dataset == self.job.dataset else planned_micros(job, predictor.family)[0]
        before = partial(self.say, f"Predicting memory and time: would {in_words(change)} fit?") if change else predictor.before
        # Only what is changed: of a continued LoRA the predictor has another rank than the settings.
        changed = {name: value for name, value in job.adapter if value != getattr(self.job.adapter, name)}
        adapter = predictor.adapter.model_copy(update=changed)
        return job, replace(predictor, adapter=adapter, optimizer=job.optimizer, micros=micros, before=before)
