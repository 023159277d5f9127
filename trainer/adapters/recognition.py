"""Which family a LoRA belongs to, told from its layers' names and sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import UserError, fail
from ..models import FAMILIES, known_family, known_models
from .names import find_layer
from .weights import LoraWeights, require_modules

if TYPE_CHECKING:
    from ..models.base import ModelFamily
    from ..models.key_map import KeyMap, Place
    from .reading import RawLora

Sizes = Mapping[str, tuple[int, int]]  # [out, in] of layers, by their names in the file


@dataclass(frozen=True)
class Candidate:
    """A family that has layers of all the LoRA's names: a release that has them in its sizes, or the main one."""

    family: ModelFamily
    fits: bool


def candidates(sizes: Sizes, names: Iterable[str] = FAMILIES) -> list[Candidate]:
    """Those of the named families that have all these layers; if any have them in these sizes, only those."""
    found = []
    for name in names:
        if places := _places(sizes, known_family(name).keys):
            found.append(next(_fitting(name, places, sizes), Candidate(known_family(name), False)))
    return [candidate for candidate in found if candidate.fits] or found


def family_of(raw: RawLora, wanted: ModelFamily | str = "") -> ModelFamily:
    """A wanted model, else the one family, of a wanted name, that a LoRA can belong to; raises UserError if there is no telling."""
    if not isinstance(wanted, str):
        return wanted
    found = candidates(raw.sizes, [wanted] if wanted else FAMILIES)
    if len(found) == 1:
        return found[0].family
    if wanted:
        return known_family(wanted)  # reading says what does not belong to it
    if found:
        names = " and ".join(candidate.family.spec.family for candidate in found)
        raise fail(str(raw.file), f"has layers that {names} have alike.", "Say which model it belongs to.")
    name = next(iter(raw.layers))
    raise fail(str(raw.file), f"is a LoRA of no known family (its first layer is {name}).", f"Families: {', '.join(FAMILIES)}.")


def refusal(raw: RawLora, family: ModelFamily, strangers: Sequence[str]) -> UserError:
    """The error of a LoRA that has layers which the family lacks."""
    others = [found.family.spec.family for found in candidates(raw.sizes)]
    found = f"is not a {family.spec.family} LoRA: {len(strangers)} of its {len(raw.layers)} layers are unknown, such as {strangers[0]}"
    found += f" (expected names like {_example(family)}). "
    found += f"It is one of {' or '.join(others)}." if others else "Its family is not known here."
    return fail(str(raw.file), found, f"Choose a LoRA trained for {family.spec.family}, or the model that this one belongs to.")


def misfit(raw: RawLora, family: ModelFamily, layer: str) -> UserError:
    """The error of a LoRA whose layer, that the family keeps as several, has not the size of these."""
    rows, columns = raw.sizes[layer]
    found = f"has a layer of another size than {family.spec.family}'s: {layer} of {rows}x{columns}.{_fits(raw.sizes)}"
    return fail(str(raw.file), found, "Choose a LoRA trained for this model, or give the folder of the model that it belongs to.")


def require_fit(weights: LoraWeights, family: ModelFamily, where: str) -> None:
    """Raises UserError if the LoRA has layers that the model lacks or has in another size, saying whose they are."""
    try:
        require_modules(weights, family.layer_shapes, where)
    except UserError as error:
        sizes = {name: pair.layer for name, pair in weights.pairs.items()}
        problem = error.problems[0]
        raise fail(problem.where, problem.found + _fits(sizes), problem.cure) from None


def _fits(sizes: Sizes) -> str:
    """What such layers belong to, as a sentence after others; empty if that is not known."""
    found = [f"{candidate.family.spec.family} {candidate.family.spec.variant}" for candidate in candidates(sizes) if candidate.fits]
    return f" It fits {' and '.join(found)}." if found else ""


def _example(family: ModelFamily) -> str:
    """A layer's names in ComfyUI and in diffusers."""
    module = next(module for module in family.layer_shapes if re.fullmatch(family.spec.adapter_targets["all"], module))
    return f"{family.keys.prefix}{family.keys.place(module).comfy} or transformer.{module}"


def _places(names: Iterable[str], keys: KeyMap) -> dict[str, Place]:
    """What each layer holds; nothing at all if one of them is unknown."""
    with suppress(KeyError):
        return {name: find_layer(name, keys)[0] for name in names}
    return {}


def _fitting(name: str, places: Mapping[str, Place], sizes: Sizes) -> Iterator[Candidate]:
    """The family's releases that have these layers in these sizes."""
    for model in known_models(name):
        shapes = {layer: [model.layer_shapes.get(module) for module in place.modules] for layer, place in places.items()}
        if all(_is_sum(sizes[layer], parts) for layer, parts in shapes.items()):
            yield Candidate(model, True)


def _is_sum(size: tuple[int, int], parts: Sequence[tuple[int, int] | None]) -> bool:
    """Whether layers of these sizes, one above the other, make one of that size."""
    known = [part for part in parts if part is not None]
    return len(known) == len(parts) and sum(rows for rows, _ in known) == size[0] and all(columns == size[1] for _, columns in known)
