"""Which family a LoRA belongs to, told from its layers' names and sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import UserError, fail
from ..models import FAMILIES, known_family
from .names import find_layer
from .weights import LoraWeights, require_modules

if TYPE_CHECKING:
    from ..models.base import ModelFamily
    from .reading import RawLora


@dataclass(frozen=True)
class Candidate:
    """A family that has layers of all the LoRA's names, and whether they have its sizes in the family's main release."""

    family: ModelFamily
    fits: bool


def candidates(shapes: Mapping[str, tuple[int, int]]) -> list[Candidate]:
    """The families that have all these layers, those of the same sizes first; `shapes` are [out, in] by the names in the file."""
    found = [Candidate(family, fits) for name in FAMILIES if (fits := _fits(family := known_family(name), shapes)) is not None]
    return sorted(found, key=lambda candidate: not candidate.fits)


def recognised(raw: RawLora) -> ModelFamily:
    """The one family that a LoRA can belong to; raises UserError if there is none, or no telling which."""
    found = candidates(raw.shapes)
    best = [candidate for candidate in found if candidate.fits] or found
    if len(best) == 1:
        return best[0].family
    if best:
        names = " and ".join(candidate.family.spec.family for candidate in best)
        raise fail(str(raw.file), f"has layers that {names} have alike.", "Say which model it belongs to.")
    name = next(iter(raw.layers))
    raise fail(str(raw.file), f"is a LoRA of no known family (its first layer is {name}).", f"Families: {', '.join(FAMILIES)}.")


def refusal(raw: RawLora, family: ModelFamily, strangers: Sequence[str]) -> UserError:
    """The error of a LoRA that has layers which the family lacks."""
    others = [found.family.spec.family for found in candidates(raw.shapes)]
    found = f"is not a {family.spec.family} LoRA: {len(strangers)} of its {len(raw.layers)} layers are unknown, such as {strangers[0]}"
    found += f" (expected names like {_example(family)}). "
    found += f"It is one of {' or '.join(others)}." if others else "Its family is not known here."
    return fail(str(raw.file), found, f"Choose a LoRA trained for {family.spec.family}, or the model that this one belongs to.")


def require_fit(weights: LoraWeights, family: ModelFamily, where: str) -> None:
    """Raises UserError if the LoRA has layers that the model lacks or has in another size, saying whose they are."""
    try:
        require_modules(weights, family.layer_shapes, where)
    except UserError as error:
        shapes = {name: (pair.up.shape[0], pair.down.shape[1]) for name, pair in weights.pairs.items()}
        others = [found.family.spec.family for found in candidates(shapes) if found.fits and found.family.spec.family != family.spec.family]
        if not others:
            raise
        problem = error.problems[0]
        raise fail(problem.where, f"{problem.found} It fits {' and '.join(others)}.", problem.cure) from None


def _example(family: ModelFamily) -> str:
    """A layer's names in ComfyUI and in diffusers."""
    module = next(module for module in family.layer_shapes if re.fullmatch(family.spec.adapter_targets["all"], module))
    return f"{family.keys.prefix}{family.keys.place(module).comfy} or transformer.{module}"


def _fits(family: ModelFamily, shapes: Mapping[str, tuple[int, int]]) -> bool | None:
    """Whether a family has all layers in these sizes; None if it lacks one."""
    fits = True
    for name, (rows, columns) in shapes.items():
        try:
            place, _ = find_layer(name, family.keys)
        except KeyError:
            return None
        own = [family.layer_shapes.get(module) for module in place.modules]
        fits = fits and all(size is not None and size[1] == columns for size in own) and sum(size[0] for size in own if size) == rows
    return fits
