"""check_against_model: what of a job its model cannot follow, of a run and of its plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .errors import Problem, UserError

if TYPE_CHECKING:
    from .job import TrainingJob
    from .models.base import ModelFamily


def check_against_model(job: TrainingJob, family: ModelFamily, run: Path) -> None:
    """Raises UserError listing the settings that this model cannot follow, before anything large is read.

    A run whose folder is there does not need the LoRA that it continued from: its checkpoints hold all.
    """
    from .adapters.file import load_lora
    from .adapters.recognition import require_fit
    from .combinations import illegal
    from .experts import continued_file, experts_until, trained_experts
    from .memory.vae_memory import unmet_savings
    from .optimizer_trial import check_optimizer
    from .sampling import SampleRequest, read_pictures

    problems: list[Problem] = [*illegal(job), *check_optimizer(job), *unmet_savings(family, job.memory)]
    for number, prompt in enumerate(job.samples.prompts):
        try:
            frames, height, width = prompt.size.shape if prompt.size else family.spec.default_bucket
            request = SampleRequest(prompt.prompt, frames, height, width, first_frame=prompt.image, last_frame=prompt.last_image)
            read_pictures(request.checked(family.spec))
        except UserError as error:
            problems += [Problem(f"samples.prompts.{number}.{p.where}", p.found, p.cure) for p in error.problems]
    try:
        experts, steps, every = trained_experts(family.spec, job.model.expert), job.schedule.steps, job.schedule.switch_every
        if idle := experts[len(experts_until(steps, experts, every)) :]:
            found = f"{steps} steps end before it is the turn of the expert for {idle[0].name} noise."
            problems.append(Problem("schedule.steps", found, "Train longer, lower schedule.switch_every, or set model.expert to one."))
        for expert in experts if job.adapter.continue_from and not run.exists() else ():
            file = continued_file(job, expert, family.spec)
            require_fit(load_lora(file, family), family, str(file))
    except UserError as error:
        problems += error.problems
    if problems:
        raise UserError(problems)
