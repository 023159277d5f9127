"""plan_of_job: the plan of a job file, without its clips and, if a card is named, without a card."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import fail

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..job import TrainingJob
    from ..run import Places
    from .card import Card
    from .plan import Plan


def plan_of_job(
    job: TrainingJob, places: Places, card_name: str = "", fit: float = 0.0, say: Callable[[str], object] = lambda _: None
) -> Plan:
    """The plan by the buckets of the job's settings; of a released model that is not here, by its configurations.

    `fit` GB take the place of the setting memory.fit_into, `say` hears what is on. Without a name the card of this machine is
    measured. Raises UserError for settings that training refuses, an optimizer among them that is not here or does not step, for a
    model that is not known, and if nothing fits.
    """
    import torch

    from ..compute import dtype_of
    from ..job_check import check_against_model
    from .examples import planned_micros
    from .plan import make_plan
    from .planned_model import planned_model

    job = job.with_absolute_paths()
    if fit:
        job = job.model_copy(update={"memory": job.memory.model_copy(update={"fit_into": fit})})
    with torch.inference_mode(False), torch.enable_grad():  # which ComfyUI takes from its nodes, and a rehearsed step needs
        family, said = planned_model(job.model, places)
        # what optimizers are tried on; the card may be another machine's
        job = job.model_copy(update={"compute": job.compute.model_copy(update={"device": "auto"})})
        check_against_model(job, family, places.runs / job.output.name)
        card, free = card_for(card_name)
        micros, size = planned_micros(job, family)
        plan = make_plan(job, family, micros, size, card, dtype_of(job.compute.dtype, card.has_bf16), free, say=say)
        return replace(plan, model=f"{plan.model}, {said}") if said else plan


def card_for(name: str) -> tuple[Card, float | None]:
    """The card of a name, or this machine's and what is free of it in GB; raises UserError if there is neither."""
    import torch

    from .card import CARDS, card_at, card_named, free_memory

    if name:
        return card_named(name), None
    if not torch.cuda.is_available():
        raise fail("card", "is needed: there is none here that PyTorch can use.", f"Name one of: {', '.join(CARDS)}.")
    device = torch.device("cuda", torch.cuda.current_device())
    return card_at(device), free_memory(device)
