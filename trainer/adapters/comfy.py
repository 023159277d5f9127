"""A LoRA in ComfyUI's names: modules that ComfyUI keeps fused share one entry, block by block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..models.key_tensors import swap_halves
from .weights import LoraPair, LoraWeights

if TYPE_CHECKING:
    from ..models.base import ModelFamily
    from ..models.key_map import Place


def to_comfy(weights: LoraWeights, family: ModelFamily) -> dict[str, LoraPair]:
    """The LoRA by ComfyUI's module names, without prefix."""
    groups: dict[str, tuple[Place, dict[int, LoraPair]]] = {}
    for module, pair in weights.pairs.items():
        place = family.keys.place(module)
        groups.setdefault(place.comfy, (place, {}))[1][place.number] = pair
    return {comfy: _swapped(_fused(place, parts, family), place) for comfy, (place, parts) in groups.items()}


def from_comfy(pairs: Mapping[str, LoraPair], family: ModelFamily) -> LoraWeights:
    """The inverse of `to_comfy`; parts of a fused module that are all zero are left out. Raises KeyError for an unknown module."""
    found: dict[str, LoraPair] = {}
    for comfy, pair in pairs.items():
        place = family.keys.found(comfy)
        found |= _parted(place, _swapped(pair, place), family)
    return LoraWeights(found)


def _fused(place: Place, parts: Mapping[int, LoraPair], family: ModelFamily) -> LoraPair:
    """One pair for several modules: downs below each other, ups block-diagonal, alpha so that each part keeps its scale."""
    import torch

    if len(place.modules) == 1:
        return parts[0]
    first = next(iter(parts.values()))
    rank = sum(pair.rank for pair in parts.values())
    ups, column = [], 0
    for number, module in enumerate(place.modules):
        up = torch.zeros(family.layer_shapes[module][0], rank)
        if pair := parts.get(number):
            up[:, column : column + pair.rank] = pair.up * (pair.scale / first.scale)
            column += pair.rank
        ups.append(up)
    return LoraPair(torch.cat([parts[number].down for number in sorted(parts)]), torch.cat(ups), first.scale * rank)


def _parted(place: Place, pair: LoraPair, family: ModelFamily) -> dict[str, LoraPair]:
    """The modules' own pairs: of each part only the ranks that reach it."""
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


def _swapped(pair: LoraPair, place: Place) -> LoraPair:
    return LoraPair(pair.down, swap_halves(pair.up), pair.alpha) if place.swapped else pair
