"""planned_model: the model that a plan is made for, of its files or, where those are not here, by the configurations that ship."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import Problem, UserError
from ..files import kind_of

if TYPE_CHECKING:
    from ..job import ModelSettings
    from ..models.base import ModelFamily
    from ..run import Places

TASKS = ("t2v", "i2v", "flf2v", "ti2v")  # what a release's name says that it starts from; the first is that of names that say nothing


def planned_model(settings: ModelSettings, places: Places) -> tuple[ModelFamily, str]:
    """A model, and what to say of it if its files are not here: then sizes are those of a variant whose configurations ship.

    That is the one which model.source names as family/variant, else that of model.family and model.variant, else the one that
    the hub id's words fit. Where downloads are allowed a hub id is downloaded. Raises UserError if none is known.
    """
    from ..models import named_variant, open_model
    from ..source import find_model

    if known := named_variant(settings.source, places.models):
        return known, "as released"
    absent = [name for name in settings.files if kind_of(Path(name)) != "file"]
    try:
        found = find_model(settings, places.models, places.downloads)
    except UserError as error:
        if settings.files or places.downloads or not (known := _released(settings)):
            raise UserError([Problem(problem.where, problem.found, f"{problem.cure} {_naming()}") for problem in error.problems]) from None
        return known, f"as released, since '{settings.source}' is not here"
    if absent and (known := _released(settings)):
        return known, f"as released, since '{absent[0]}' is not here"
    return open_model(found), ""


def _naming() -> str:
    from ..models import FAMILIES, family_class

    family = next(iter(FAMILIES))
    example = f"{family}/{family_class(family).layout.variants[0]}"
    return f"A plan can also be made for a released model: set model.source to its family and variant, such as {example}."


def _released(settings: ModelSettings) -> ModelFamily | None:
    """The variant that the settings name, or that the model's name speaks of."""
    from ..importers.families import find_family
    from ..models import FAMILIES, family_class, known_variant

    spoken = find_family(settings.source)
    family = settings.family or (spoken.trained if spoken else "")
    if family not in FAMILIES:
        return None
    variants = family_class(family).layout.variants
    variant = settings.variant if settings.variant in variants else released_as(settings.source, variants)
    return known_variant(family, variant) if variant else None


def released_as(name: str, variants: list[str]) -> str:
    """The variant all of whose words are in a release's name, of several the one of most; empty if there is none."""
    plain = name.lower()
    said = [task for task in TASKS if re.search("(?<!t)i2v" if task == "i2v" else task, plain)] or [TASKS[0]]

    def speaks_of(word: str) -> bool:
        return word in said if word in TASKS else bool(re.search(rf"(?<![\d.]){re.escape(word)}(?![\d.]*\d)", plain))

    return max((variant for variant in variants if all(map(speaks_of, variant.split("-")))), key=len, default="")
