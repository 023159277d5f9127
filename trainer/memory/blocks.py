"""The blocks of a transformer: the layers that follow each other and hold nearly all of its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def blocks_of(transformer: nn.Module) -> dict[str, nn.Module]:
    """By name and in the order in which they compute, the members of the lists of layers that the transformer itself holds.

    Lists of its small parts, such as a projection for each layer of a text encoder, are left out: diffusers does not name
    their classes among those that must not be split over devices or that repeat.
    """
    from torch import nn

    known = {*(getattr(transformer, "_no_split_modules", None) or ()), *(getattr(transformer, "_repeated_blocks", None) or ())}
    return {
        f"{name}.{number}": block
        for name, layers in transformer.named_children()
        if isinstance(layers, nn.ModuleList)
        for number, block in enumerate(layers)
        if any(type(part).__name__ in known for part in (block, *block.children()))  # some are wrapped
    }
