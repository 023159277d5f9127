"""A model's tensors between diffusers' names and ComfyUI's, fused modules joined and parted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from .key_map import KeyMap, Place

if TYPE_CHECKING:
    from torch import Tensor


def to_comfy(keys: KeyMap, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All tensors under ComfyUI's names without prefix; raises KeyError for one that has no place there or lacks its neighbours."""
    import torch

    parts: dict[str, tuple[Place, dict[int, Tensor]]] = {}
    for name, tensor in state.items():
        place, parameter = place_of(keys.place, name)
        parts.setdefault(place.comfy + parameter, (place, {}))[1][place.number] = tensor
    made = {}
    for name, (place, tensors) in parts.items():
        if missing := [module for number, module in enumerate(place.modules) if number not in tensors]:
            raise KeyError(f"{missing[0]}, which {name} holds too")
        joined = torch.cat([tensors[number] for number in sorted(tensors)]) if len(tensors) > 1 else tensors[0]
        made[name] = swap_halves(joined) if place.swapped else joined
    return made


def from_comfy(keys: KeyMap, name: str, tensor: Tensor, rows: Callable[[str], int]) -> Iterator[tuple[str, Tensor]]:
    """The diffusers tensors that one of ComfyUI's holds; `rows` gives the first dimension of each. Raises KeyError for an unknown name."""
    place, parameter = place_of(keys.found, name)
    names = [module + parameter for module in place.modules]
    tensor = swap_halves(tensor) if place.swapped else tensor
    parts = tensor.split([rows(name) for name in names]) if len(names) > 1 else [tensor]
    yield from zip(names, parts, strict=True)


def swap_halves(rows: Tensor) -> Tensor:
    """The second half of the rows before the first."""
    import torch

    return torch.cat(rows.chunk(2)[::-1])


def place_of(look: Callable[[str], Place], name: str) -> tuple[Place, str]:
    """The place of a tensor that has a rule of its own, or of its module with the parameter's name and its dot."""
    try:
        return look(name), ""
    except KeyError:
        module, dot, parameter = name.rpartition(".")
        return look(module), dot + parameter
