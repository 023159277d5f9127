"""Models of several transformers, each for a range of noise levels: which are trained, which one at a step, and whose a file is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import fail, nearest

if TYPE_CHECKING:
    from .job import TrainingJob
    from .models.base import Expert, FamilySpec


_ROUNDING = 1e-6


def trained_experts(spec: FamilySpec, wanted: str) -> list[Expert]:
    """The experts that a job trains, by the setting model.expert; raises UserError for one that the model lacks."""
    if wanted == "all" or len(spec.experts) == 1:
        return list(spec.experts)
    found = [expert for expert in spec.experts if expert.name == wanted]
    if not found:
        raise fail("model.expert", f"'{wanted}' is unknown.", nearest(wanted, ["all", *(expert.name for expert in spec.experts)]))
    return found


def expert_at(step: int, experts: Sequence[Expert], every: int) -> Expert:
    """The expert that optimizer step `step` (1-based) trains; they take turns of `every` steps."""
    return experts[(step - 1) // every % len(experts)]


def experts_until(step: int, experts: Sequence[Expert], every: int) -> list[Expert]:
    """The experts that had a turn by step `step`."""
    return list(experts[: (step - 1) // every + 1])


def expert_for(sigma: float, experts: Sequence[Expert]) -> Expert:
    """The expert that serves a noise level in (0, 1]; a boundary itself, which in float32 may come out just below, is the higher one's."""
    return next(expert for expert in experts if sigma >= expert.low - _ROUNDING)


def file_of(expert: Expert, file: Path, spec: FamilySpec, alone: bool) -> Path:
    """The LoRA file of an expert, given any of a pair: their names differ in the last "high" or "low" of them.

    An expert that is trained `alone` takes a file whose name says neither. Raises UserError if the pair is not complete.
    """
    names = [known.name for known in spec.experts if known.name]
    said = _said(file, names)
    if not names or (alone and not said):
        return file
    pair = f"Name the two files alike, such as {' and '.join(f'lora-{name}.safetensors' for name in names)}, in one folder."
    if not said:
        raise fail("adapter.continue_from", f"the name of '{file}' does not say which expert it is of.", pair)
    word, (start, end) = said[-1].group(), said[-1].span()
    own = expert.name.upper() if word.isupper() else expert.name.capitalize() if word[0].isupper() else expert.name
    found = file.with_name(file.stem[:start] + own + file.stem[end:] + file.suffix)
    if not found.is_file():
        raise fail("adapter.continue_from", f"'{found}', of the expert for {expert.name} noise, is not there.", pair)
    return found


def continued_file(job: TrainingJob, expert: Expert, spec: FamilySpec) -> Path:
    """The file that an expert's LoRA continues from; raises UserError if it lacks its pair."""
    return file_of(expert, Path(job.adapter.continue_from), spec, alone=job.model.expert != "all")


def files_by_expert(files: Sequence[Path], spec: FamilySpec, where: str) -> dict[str, Path]:
    """LoRA files by the expert that each belongs to: the one that its name says, else the first that has none.

    Raises UserError, naming the setting `where`, for more files than experts and for two of one expert.
    """
    if len(files) > len(spec.experts):
        found = f"are {len(files)}, and this model takes {len(spec.experts)} at once: {', '.join(map(str, files))}."
        raise fail(where, found, "Leave some out, or add them up into one file first, with merge-lora.")
    names = [expert.name for expert in spec.experts]
    made: dict[str, Path] = {}
    for file in files if len(names) > 1 else ():
        if said := _said(file, names):
            name = said[-1].group().lower()
            if name in made:
                raise fail(where, f"'{made[name]}' and '{file}' are both of the expert for {name} noise.", "Give one for each expert.")
            made[name] = file
    unsaid = [file for file in files if file not in made.values()]
    return made | dict(zip((name for name in names if name not in made), unsaid, strict=False))


def _said(file: Path, names: Sequence[str]) -> list[re.Match[str]]:
    """Where a file's name says of which expert it is."""
    return list(re.finditer(rf"(?<![a-z])({'|'.join(names)})(?=noise|[^a-z]|$)", file.stem, re.IGNORECASE)) if names else []
