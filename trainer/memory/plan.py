"""make_plan: what a training run will take of this machine, and how its transformer is held and computed, before anything loads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from .. import events
from ..errors import Interrupted, UserError, fail
from .card import GB, Card, card_at, free_memory
from .choices import Choices, Decoding
from .choosing import HOST_SHARE, Candidate, Limits, chosen, smallest, taken, triton_installed
from .planned_adapter import planned_adapter
from .prediction import Micro, Predictor
from .reasons import advice_of, advice_of_vae, reasons_of, why
from .sampling_memory import sampling_memory
from .step_time import told
from .stored_weights import stored_weights
from .vae_memory import image_encoder_bytes, vae_peaks

if TYPE_CHECKING:
    import torch

    from ..components import Components
    from ..data.dataset import TrainingData
    from ..events import EventLog
    from ..job import TrainingJob
    from ..models.base import ModelFamily


@dataclass(frozen=True)
class Plan:
    """What was chosen and what it comes to: seconds, and GB of 2^30 bytes as cards are sold by."""

    choices: Choices
    decoding: Decoding  # of sample videos
    model: str
    card: str
    size: str  # of the largest micro-batch, with its batch size
    step_seconds: float
    compile_seconds: float
    run_seconds: float
    training: float  # GB that the card loses in training
    sampling: float
    encoding: float
    host: float
    limit: float
    weights: float  # of training, those of the transformer
    adapter: float
    rest: float  # activations, gaps of the allocator, and what CUDA takes
    reasons: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    def table(self) -> str:
        """One table of the choices and what is expected of them, then reasons and advice."""
        c = self.choices
        rows = [
            ("model", self.model),
            ("card", f"{self.card}, {self.limit:.1f} GB to use"),
            ("largest batch", self.size + (f", computed {c.at_once} at a time" if c.at_once else "")),
            ("frozen weights", f"{c.weights}{f', {c.offload:.0%} of the blocks on the {self._place}' if c.offload else ''}"),
            ("checkpointing", c.told_checkpointing),
            ("compiled", ("yes" + (", products in fp8" if c.fp8_products else "")) if c.compile else "no"),
            (
                "training",
                f"{self.training:.1f} GB: weights {self.weights:.1f}, LoRA {self.adapter:.1f}, activations and the rest {self.rest:.1f}",
            ),
            ("sampling", f"{self.sampling:.1f} GB{f', decoded with {self.decoding}' if str(self.decoding) else ''}"),
            ("encoding clips", f"{self.encoding:.1f} GB"),
            ("host memory", f"{self.host:.1f} GB"),
            ("time", f"{told(self.step_seconds)} s a step, {_clock(self.compile_seconds)} to compile, {_clock(self.run_seconds)} in all"),
        ]
        lines = [f"{name:15} {value}" for name, value in rows]
        return "\n".join(["Plan", *lines, *(f"because: {reason}" for reason in self.reasons), *(f"advice: {text}" for text in self.advice)])

    @property
    def _place(self) -> str:
        return "disk, which is slow" if self.choices.on_disk else "host"


def make_plan(
    job: TrainingJob, family: ModelFamily, micros: Sequence[Micro], size: tuple[int, int, int], card: Card, dtype: torch.dtype,
    free: float | None = None, host: float | None = None, say: Callable[[str], object] = lambda _: None,
) -> Plan:  # fmt: skip
    """The plan of a job whose steps are made of `micros`, the largest of `size` frames, height and width.

    `free` are GB of the card that nothing else holds, `host` those of host memory; none takes the whole card and what is free
    here. `say` hears what is on, as it can take a minute: before each rehearsed step, so that it may end the plan by raising.
    Raises UserError, with the three cheapest changes, if nothing that the settings allow fits.
    """
    from ..experts import trained_experts
    from ..job import ComputeSettings, MemorySettings
    from .cures import cheapest

    memory, compute = job.memory, job.compute
    there_is = card.memory if free is None else free
    limit = min(memory.fit_into or there_is, there_is)
    experts = len(trained_experts(family.spec, job.model.expert))
    accumulation = job.schedule.accumulation
    predictor = Predictor(
        family, planned_adapter(job, family), micros, card, dtype, accumulation, experts, stored_weights(family, dtype), job.optimizer,
        HOST_SHARE * (GB * host if host is not None else _free_host()), partial(say, "Predicting memory and time: rehearsing steps"),
    )  # fmt: skip
    limits = Limits(limit * GB, job.schedule.steps, triton_installed())
    found = chosen(predictor, memory, compute, limits)
    if found is None:
        least = taken(smallest(predictor, MemorySettings(), ComputeSettings(), limits).prediction.peak) / GB
        changes = cheapest(predictor, job, limits, size, say)
        cure = "Any of these would fit: " + "; ".join(map(str, changes)) + "." if changes else _more_memory(least, there_is, card)
        digits = next((digits for digits in (1, 2) if f"{limit:.{digits}f}" != f"{least:.{digits}f}"), 3)
        may, needs = f"{limit:.{digits}f}", f"{least:.{digits}f}"
        problem = f"training needs more than the {may} GB that it may take; at this size never less than {needs} GB."
        raise fail("memory.fit_into", problem, cure)
    say("Predicting memory and time: rehearsing what the VAE does")
    return _plan(predictor, found, limits, job, size)


def _more_memory(least: float, free: float, card: Card) -> str:
    """Where the GB that a training takes at least could come from, of a card of which so many are free."""
    if least < free:
        return f"Set it to {math.ceil(10 * least) / 10:g} or more, or to 0 for all of the card."
    if least < card.memory:
        return f"Close other programs that use the card, which leave {free:.1f} GB of it."
    return "Use another card or a smaller model."


def plan_for_run(
    job: TrainingJob, family: ModelFamily, dataset: TrainingData, device: torch.device, dtype: torch.dtype,
    say: Callable[[str], object] = lambda _: None,
) -> Plan | None:  # fmt: skip
    """The plan of a run whose clips are prepared; None on a device that is no CUDA card, where nothing is traded for memory."""
    from .examples import prepared_micros

    if device.type != "cuda":
        return None
    micros, size = prepared_micros(job, dataset)
    return make_plan(job, family, micros, size, card_at(device), dtype, free_memory(device), say=say)


def told_plan(job: TrainingJob, components: Components, dataset: TrainingData, log: EventLog) -> Plan | None:
    """A run's plan, which is told in the log; None where nothing is planned, so that the settings hold as they are."""
    plan, compute = None, components.compute
    try:
        plan = plan_for_run(job, components.family, dataset, compute.device, compute.dtype, log.saying("prepare"))
    except (UserError, Interrupted):
        raise
    except Exception as error:  # a library's new version may compute in ways that cannot be rehearsed, and train all the same
        log.notice(f"Memory and time could not be predicted ({type(error).__name__}: {error}).", "memory")
    if plan:
        times = plan.step_seconds, plan.compile_seconds, plan.run_seconds
        log.emit(events.Plan(*times, plan.training, plan.sampling, plan.host, plan.table()))
    return plan


def _free_host() -> float:
    import psutil

    return float(psutil.virtual_memory().available)


def _plan(predictor: Predictor, found: Candidate, limits: Limits, job: TrainingJob, size: tuple[int, int, int]) -> Plan:
    prediction, choices, spec = found.prediction, found.choices, predictor.family.spec
    micro = predictor.largest(replace(choices, at_once=0))
    vae, image_encoder = vae_peaks(predictor.family, size, job.memory.vae_tiling), image_encoder_bytes(predictor.family, predictor.dtype)
    forward = max(part.peak_forward for part in predictor.rehearsal(predictor.largest(choices), choices).parts)
    sampling = sampling_memory(job, predictor.family, size, prediction, forward, limits.card, image_encoder)
    encoding = taken(vae.weights + image_encoder + (vae.encode or 0))
    may_tile = vae.tiles and not job.memory.vae_tiling
    reasons = [*reasons_of(predictor, found, job), *why(sampling.decoding)]
    advice = [*advice_of(predictor, found, limits), *advice_of_vae(sampling, encoding, limits, may_tile)]
    step, parked = prediction.seconds, prediction.weights if sampling.decoding.parked else 0
    return Plan(
        choices=choices,
        decoding=sampling.decoding,
        model=f"{spec.family} {spec.variant}",
        card=predictor.card.name,
        size=f"{micro.name}, batch {micro.batch}",
        step_seconds=step,
        compile_seconds=prediction.compile_seconds,
        run_seconds=prediction.compile_seconds + step * job.schedule.steps,
        training=taken(prediction.peak) / GB,
        sampling=sampling.taken / GB,
        encoding=encoding / GB,
        host=(prediction.host + vae.weights + image_encoder + parked) / GB,
        limit=limits.card / GB,
        weights=prediction.weights / GB,
        adapter=prediction.adapter / GB,
        rest=(taken(prediction.peak) - prediction.weights - prediction.adapter) / GB,
        reasons=tuple(reasons),
        advice=tuple(advice),
    )


def _clock(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours}:{minutes:02} h" if hours else f"{minutes} min"
