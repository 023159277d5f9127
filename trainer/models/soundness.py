"""Values of a model's configurations that every family must have right: its parts go together, its schedule can be computed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..errors import Problem, UserError

if TYPE_CHECKING:
    from .base import ModelFamily


def require_sound(model: ModelFamily) -> None:
    """Raises UserError for encoders of another width than the transformer takes, and for a shift that is no number above zero."""
    problems = [*_disagreements(model), *_shifts(model)]
    if problems:
        raise UserError(problems)


def _disagreements(model: ModelFamily) -> list[Problem]:
    """Parts whose values differ where the layout says that they must not; what a configuration does not say is not compared."""
    problems, files = list[Problem](), model.files
    for part, name, other, own in model.layout.agreements:
        wanted, config = files.config(part).get(name), files.config(other)
        found = config.get(own, config.get("text_config", {}).get(own))  # of a model that also sees pictures
        if None not in (wanted, found) and wanted != found:
            told = f"has {own} {found}, and {part} needs {wanted} ({name})."
            problems.append(Problem(f"{files.name}, {other}", told, "Use the one of the same release."))
    return problems


def _shifts(model: ModelFamily) -> list[Problem]:
    """The shift of the noise levels at the default size."""
    spec = model.spec
    frames, height, width = (math.ceil(size / step) for size, step in zip(spec.default_bucket, spec.latent_stride, strict=True))
    shifts = {model.shift((spec.latent_channels, frames, height, width), sampling) for sampling in (False, True)}
    return [
        Problem(f"{model.files.name}, scheduler", f"gives a shift of {shift:g}, and it must be above zero.", "Download this file again.")
        for shift in sorted(shifts)
        if not 0 < shift < math.inf
    ]
