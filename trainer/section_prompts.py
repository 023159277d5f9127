"""Prompts that tell what happens when: what each section of a drawn video is told, by the same rule as in training."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from .data.timed_captions import section_ranges, timed

if TYPE_CHECKING:
    from .models.base import FamilySpec
    from .sampling import SampleRequest


def section_prompts(request: SampleRequest, spec: FamilySpec) -> tuple[str, ...]:
    """The text of each section in the order of time; a single one where the model has no sections or the prompt tells no times."""
    caption = timed(request.prompt)
    if not caption.spans:
        return (request.prompt,)
    fps, sections = Fraction(spec.fps), section_ranges(request.frames, spec.sections(request.frames))
    spans = [caption.at([frame / fps for frame in section], request.frames / fps) for section in sections]
    return tuple(span.text if span else caption.text for span in spans)
