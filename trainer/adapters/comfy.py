"""A LoRA in the names of ComfyUI or of the original release: modules that these keep fused share one entry, block by block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import fail
from ..models.key_tensors import swap_halves
from .weights import LoraPair, LoraWeights

if TYPE_CHECKING:
    from ..models.base import ModelFamily
    from ..models.key_map import KeyMap, Place


def to_comfy(weights: LoraWeights, family: ModelFamily, keys: KeyMap | None = None) -> dict[str, LoraPair]:
    """The LoRA by ComfyUI's module names, or by those of another map, without prefix."""
    groups: dict[str, tuple[Place, dict[int, LoraPair]]] = {}
    for module, pair in weights.pairs.items():
        place = (keys or family.keys).place(module)
        groups.setdefault(place.comfy, (place, {}))[1][place.number] = pair
    return {comfy: _swapped(_fused(place, parts, family), place) for comfy, (place, parts) in groups.items()}


def parted(place: Place, pair: LoraPair, family: ModelFamily) -> dict[str, LoraPair]:
    """The inverse for one entry: its modules' pairs, each of the ranks that reach it; parts that are all zero are left out.

    Raises KeyError if a fused module's size is not that of the family's.
    """
    pair = _swapped(pair, place)
    if len(place.modules) == 1:
        return {place.modules[0]: pair}
    sizes = [family.layer_shapes[module][0] for module in place.modules]
    if sum(sizes) != pair.up.shape[0]:
        raise KeyError(f"{place.comfy} of {pair.up.shape[0]} rows")
    found = {}
    for module, up in zip(place.modules, pair.up.split(sizes), strict=True):
        reach = up.any(0)
        if reach.any():
            rank = int(reach.sum())
            found[module] = LoraPair(pair.down[reach].contiguous(), up[:, reach].contiguous(), pair.scale * rank)
    return found


def _fused(place: Place, parts: Mapping[int, LoraPair], family: ModelFamily) -> LoraPair:
    """One pair for several modules: downs below each other, ups block-diagonal, alpha so that each part keeps its scale."""
    import torch

    if len(place.modules) == 1:
        return parts[0]
    first = next(iter(parts.values()))
    rank = sum(pair.rank for pair in parts.values())
    ups, column = [], 0
    for number in range(len(place.modules)):
        up = torch.zeros(_rows(number, place, parts, family), rank)
        if pair := parts.get(number):
            up[:, column : column + pair.rank] = pair.up * (pair.scale / first.scale)
            column += pair.rank
        ups.append(up)
    return LoraPair(torch.cat([parts[number].down for number in sorted(parts)]), torch.cat(ups), first.scale * rank)


def _rows(number: int, place: Place, parts: Mapping[int, LoraPair], family: ModelFamily) -> int:
    """Outputs of a part: the LoRA's own, for one that it lacks the model's; raises UserError if the others are not of that model's size."""
    if number in parts:
        return parts[number].up.shape[0]
    for other, pair in parts.items():
        own = family.layer_shapes.get(place.modules[other])
        if own is None or own[0] != pair.up.shape[0]:
            found = f"is of another size than the LoRA, whose {place.modules[other]} has {pair.up.shape[0]} outputs: "
            found += f"the size of {place.modules[number]}, which the LoRA lacks, is not known."
            raise fail(family.files.name, found, "Give the folder of the model that the LoRA belongs to.")
    return family.layer_shapes[place.modules[number]][0]


def _swapped(pair: LoraPair, place: Place) -> LoraPair:
    return LoraPair(pair.down, swap_halves(pair.up), pair.alpha) if place.swapped else pair
