"""planned_adapter: the adapter that a plan counts with, of a job that continues a LoRA the one of its file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..job import AdapterSettings, TrainingJob
    from ..models.base import ModelFamily


def planned_adapter(job: TrainingJob, family: ModelFamily) -> AdapterSettings:
    """The job's adapter, its rank that with which all layers that the settings name have as many numbers as the continued file.

    Of two experts' files the larger counts. A run that goes on from a checkpoint does without the file, and so does its plan.
    Raises UserError for a file that is no LoRA of this model.
    """
    from ..adapters.file import load_lora
    from ..experts import continued_file, trained_experts
    from .prediction import sizes_of

    settings = job.adapter
    if not settings.continue_from or not Path(settings.continue_from).is_file():
        return settings
    files = {continued_file(job, expert, family.spec) for expert in trained_experts(family.spec, job.model.expert)}
    numbers = max(sum(pair.down.numel() + pair.up.numel() for pair in load_lora(file, family).pairs.values()) for file in files)
    return settings.model_copy(update={"rank": math.ceil(numbers * settings.rank / sizes_of(family, settings).adapter)})
