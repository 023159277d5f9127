"""Changes of a job that make it take less of a card, each as the settings that it sets, the cheapest for the user first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from ..optimizer_kinds import KINDS, usual_rate
from ..optimizer_trial import check_optimizer
from .examples import shapes_at

if TYPE_CHECKING:
    from ..job import TrainingJob
    from ..models.base import ModelFamily

Change = tuple[str, ...]  # "part.setting=value" each, as `TrainingJob.overridden` takes them
Size = tuple[int, int, int]  # frames, height, width
AUTOMATIC = {"gradient_checkpointing": "auto", "layer_offload_fraction": "auto", "weights": "auto"}
LOWEST_RANK = 4
OFFLOADED = "optimizer.offload_state=true"


def slower(job: TrainingJob) -> list[Change]:
    """What costs only time, or exactness of the frozen weights: settings of memory at auto, one by one and all of them."""
    free = job.overridden([f"memory.{name}={value}" for name, value in AUTOMATIC.items()]).memory
    fixed = [f"memory.{name}={value}" for name, value in AUTOMATIC.items() if getattr(job.memory, name) != getattr(free, name)]
    return [*((each,) for each in fixed), *([tuple(fixed)] if len(fixed) > 1 else [])]


def smaller_state(job: TrainingJob) -> list[Change]:
    """What the LoRA and its optimizer keep: elsewhere, then less exactly, then with other steps at rates that are alike."""
    optimizer = job.optimizer
    unclipped = () if optimizer.max_grad_norm == 0 else ("optimizer.max_grad_norm=0",)
    kept = KINDS[optimizer.name].state_bytes
    elsewhere: list[Change] = [] if optimizer.offload_state else [(OFFLOADED, *unclipped)]
    eighths: list[Change] = [("optimizer.name=AdamW 8-bit",)] if kept > KINDS["AdamW 8-bit"].state_bytes else []
    halves: list[Change] = [("adapter.precision=bf16",)] if job.adapter.precision != "bf16" else []
    factored: list[Change] = [("optimizer.name=Adafactor",)] if kept and optimizer.name != "CAME" else []
    first, last = ([], elsewhere) if unclipped else (elsewhere, [])  # what is not clipped any more may learn otherwise
    return [*first, *eighths, *halves, *factored, *last]


def lower_ranks(job: TrainingJob) -> list[Change]:
    """Halves of the rank, with the LoRA's strength as it was; none for a LoRA that is continued, which keeps its own."""
    found, rank = list[Change](), job.adapter.rank // 2
    while rank >= LOWEST_RANK and not job.adapter.continue_from:
        alpha = (f"adapter.alpha={job.adapter.alpha * rank / job.adapter.rank:g}",) if job.adapter.alpha else ()
        found.append((f"adapter.rank={rank}", *alpha))
        rank //= 2
    return found


def smaller_sizes(job: TrainingJob, family: ModelFamily, size: Size) -> list[Change]:
    """Fewer frames, smaller frames, and both, in place of all buckets that are larger; `size` is that of the largest.

    Smaller batches would not help, as they are split where that makes them fit.
    """
    spec, (_, height, width) = family.spec, size
    fewer = [spec.frame_rule.floor(int(size[0] * share)) for share in (1, 0.75, 0.5, 0.25)]
    smaller = [(height, width), *(spec.size_near(height * share, width * share) for share in (0.75, 0.5))]
    found = [(count, height, width) for count in fewer] + [(size[0], *area) for area in smaller] + [(fewer[-1], *smaller[-1])]
    ordered = sorted((each for each in dict.fromkeys(found) if each != size), key=lambda each: _latents(family, each), reverse=True)
    return [_resized(job, family, each, size) for each in ordered]


def _resized(job: TrainingJob, family: ModelFamily, size: Size, largest: Size) -> Change:
    """Examples of at most a size in place of the largest: of windows their length, and buckets that hold as many of them as before."""
    windows = job.dataset.windows
    if windows is None:
        return _buckets(job, family, size, size[0])
    shorter = (f"dataset.windows.size={size[0]}",) if size[0] != largest[0] else ()
    longest = max((*(bucket.frames for bucket in job.dataset.buckets), *job.dataset.frame_buckets), default=family.spec.default_bucket[0])
    return (*shorter, *(_buckets(job, family, size, longest) if size[1:] != largest[1:] else ()))


def _buckets(job: TrainingJob, family: ModelFamily, size: Size, frames: int) -> Change:
    """A bucket of so many frames and a size's area in place of those that are larger; frame counts and areas make larger ones too."""
    windows = job.dataset.windows

    def latents(bucket: Size) -> int:
        return _latents(family, (min(bucket[0], windows.size) if windows else bucket[0], *bucket[1:]))

    kept = [str(bucket) for bucket in job.dataset.buckets if latents(bucket.shape) < _latents(family, size)]
    emptied = [f"dataset.{name}=[]" for name in ("frame_buckets", "resolutions") if getattr(job.dataset, name)]
    return (f"dataset.buckets={json.dumps([f'{frames}x{size[1]}x{size[2]}', *kept])}", *emptied)


def _latents(family: ModelFamily, size: Size) -> int:
    """Elements of a clip's latents, by which the largest micro-batch is told."""
    return prod(shapes_at(family, size).encoding["latents"])


def steps_here(job: TrainingJob) -> bool:
    """Whether a job's optimizer works here with its options, and its learning rate is one that it is used with."""
    return not usual_rate(job.optimizer) and not check_optimizer(job)


def in_words(change: Sequence[str]) -> str:
    """A change in words."""
    return " with ".join(filter(None, (change[0], " and ".join(change[1:]))))
