"""plan_of_job: the plan of a job file, without its clips and, if a card is named, without a card."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import fail

if TYPE_CHECKING:
    from ..job import TrainingJob
    from ..run import Places
    from .card import Card
    from .plan import Plan


def plan_of_job(job: TrainingJob, places: Places, card_name: str = "", fit: float = 0.0) -> Plan:
    """The plan by the buckets of the job's settings; raises UserError if its model cannot be found or nothing fits.

    `fit` GB take the place of the setting memory.fit_into. Without a name the card of this machine is measured.
    """
    import torch

    from ..models import open_model
    from ..source import find_model
    from .examples import planned_micros
    from .plan import make_plan

    job = job.with_absolute_paths()
    if fit:
        job = job.model_copy(update={"memory": job.memory.model_copy(update={"fit_into": fit})})
    with torch.inference_mode(False), torch.enable_grad():  # which ComfyUI takes from its nodes, and a rehearsed step needs
        family = open_model(find_model(job.model, places.models, places.downloads))
        card, free = card_for(card_name)
        micros, size = planned_micros(job, family)
        wanted = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "auto": torch.bfloat16}[job.compute.dtype]
        dtype = torch.float32 if job.compute.dtype == "auto" and card.capability < (8, 0) else wanted
        return make_plan(job, family, micros, size, card, dtype, free)


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
