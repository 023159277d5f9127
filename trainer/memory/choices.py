"""What a run trades for memory and speed, as the settings or the planner decided."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ..job import ComputeSettings, MemorySettings

Quantized = Literal["fp8", "int8", "nf4"]
Weights = Literal["as stored", "unquantized", Quantized]
Checkpointing = Literal["off", "light", "selective", "full", "offloaded"]


LESS: dict[Checkpointing, Checkpointing] = {"off": "light", "light": "selective", "selective": "full"}  # what takes less memory
LIGHTER: dict[Checkpointing, Checkpointing] = {less: more for more, less in LESS.items()}
PLACES = 2  # on the card for offloaded blocks: of the one that computes, and of the next
NOTCH = 0.25  # of the blocks, that are offloaded or keep less at once when memory ran out


def quantized_form(weights: Weights) -> Quantized | None:
    """The form that weights are quantised to while they are loaded, if they are."""
    return weights if weights in ("fp8", "int8", "nf4") else None


@dataclass(frozen=True)
class Choices:
    """How a transformer is held and computed."""

    weights: Weights = "as stored"
    offload: float = 0.0  # share of the blocks whose weights lie on the host, 0 to 1
    checkpointing: Checkpointing = "full"
    lighter: float = 0.0  # share of the blocks, the last ones, that are checkpointed as LIGHTER says
    compile: bool = False
    fp8_products: bool = False
    on_disk: bool = False  # whether offloaded weights lie in a file rather than in memory
    at_once: int = 0  # examples of a micro-batch that are computed together at most, their gradients added up; 0 has no limit

    def smaller(self, examples: int = 1) -> Choices | None:
        """One notch less memory of the card, the cheapest first; None if there is none left.

        `examples` were computed together when memory ran out. None changes what is computed, but for the masks of a LoRA's dropout,
        which are drawn for examples together.
        """
        if self.lighter:
            return replace(self, lighter=max(round(self.lighter - NOTCH, 3), 0.0))
        if self.checkpointing in LESS:
            return replace(self, checkpointing=LESS[self.checkpointing])
        if examples > 1:
            return replace(self, at_once=examples // 2)
        if self.offload < 1:
            return replace(self, offload=min(round(self.offload + NOTCH, 3), 1.0))
        return replace(self, checkpointing="offloaded") if self.checkpointing == "full" else None

    @property
    def told_checkpointing(self) -> str:
        """How blocks are checkpointed, in words."""
        if not self.lighter:
            return self.checkpointing
        return f"{self.checkpointing}, in the last {self.lighter:.0%} of the blocks {LIGHTER[self.checkpointing]}"

    def __str__(self) -> str:
        parts = [
            f"checkpointing {self.told_checkpointing}",
            f"{self.offload:.0%} of the blocks offloaded" if self.offload else "",
            f"batches computed {self.at_once} at a time" if self.at_once else "",
        ]
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class Decoding:
    """Whether the transformer lies on the host while the VAE works for samples, and whether it decodes in tiles of the frame."""

    parked: bool = False
    tiled: bool = False

    def smaller(self, tiles: bool) -> Decoding | None:
        """What takes less of the card, first what changes nothing; None if there is nothing left. `tiles`: the VAE has tiling."""
        if not self.parked:
            return Decoding(parked=True, tiled=self.tiled)
        return Decoding(parked=True, tiled=True) if tiles and not self.tiled else None

    def __str__(self) -> str:
        parts = ["the transformer on the host"] * self.parked + ["in tiles of the frame"] * self.tiled
        return ", ".join(parts)


def offloaded_blocks(choices: Choices, blocks: int) -> int:
    """How many of the blocks have their weights on the host."""
    return math.ceil(choices.offload * blocks - 1e-6)


def lighter_blocks(choices: Choices, blocks: int) -> int:
    """How many of the blocks, the last ones, are checkpointed lighter."""
    return int(choices.lighter * blocks + 1e-6)


def settled(memory: MemorySettings, compute: ComputeSettings) -> Choices:
    """What the settings say by themselves; what they leave to the planner is the plain way."""
    return Choices(
        weights="as stored" if memory.weights == "auto" else memory.weights,
        offload=max(memory.layer_offload_fraction, 0.0),
        checkpointing="full" if memory.gradient_checkpointing == "auto" else memory.gradient_checkpointing,
        compile=compute.compile == "on",
        fp8_products=compute.fp8_products == "on",
    )
