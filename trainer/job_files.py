"""The files that a job points to, and what would show that one of them changed."""

from __future__ import annotations

from .data.sources.inspect import state, state_of
from .data.sources.paths import folder_path
from .job import TrainingJob


def job_state(job: TrainingJob) -> list[list[tuple[str, int, int]]]:
    """Path, size and modification time of every file of each source, of the LoRA to go on from and of sample prompts' images."""
    named = (job.adapter.continue_from, *(prompt.image for prompt in job.samples.prompts))
    return [*map(state, job.dataset.sources), state_of(folder_path(name) for name in named if name.strip())]
