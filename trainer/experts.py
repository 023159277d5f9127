"""Models of several transformers, each for a range of noise levels: which are trained, and which one at a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .errors import fail, nearest

if TYPE_CHECKING:
    from .models.base import Expert, FamilySpec


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


def expert_for(sigma: float, experts: Sequence[Expert]) -> Expert:
    """The expert that serves a noise level in (0, 1]."""
    return next(expert for expert in experts if expert.low < sigma <= expert.high)
