"""Predictor: what a training step takes of a card under given choices."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ..optimizer_settings import OptimizerSettings
from .choices import LIGHTER, PLACES, Checkpointing, Choices, lighter_blocks, offloaded_blocks
from .optimizer_state import Layers, state_on_card, state_on_host, trained_numbers, weight_bytes
from .remembered import model_key, remembered
from .step_time import compile_seconds, copy_seconds, gradient_seconds, update_seconds

if TYPE_CHECKING:
    import torch

    from ..job import AdapterSettings
    from ..models.base import ModelFamily
    from .card import Card
    from .rehearsal import Rehearsal, Shapes
    from .stored_weights import StoredWeights

AHEAD = 2  # blocks whose offloaded activations are on the card at a time
WORKSPACE = 64 << 20  # bytes that cuBLAS takes of the allocator


@dataclass(frozen=True)
class Micro:
    """A micro-batch: the shapes of its examples, how many, and how often it comes in a step, the mean, without accumulation."""

    shapes: Shapes
    batch: int = 1
    count: float = 1.0
    name: str = ""

    def size(self) -> int:
        """Elements of its latents."""
        return math.prod(self.shapes.encoding["latents"]) * self.batch

    def in_pieces(self, size: int) -> list[Micro]:
        """The same with at most `size` examples at a time, 0 has no limit: whole pieces, so many times as often, and what is left."""
        if not 0 < size < self.batch:
            return [self]
        whole, left = divmod(self.batch, size)
        return [replace(self, batch=size, count=self.count * whole), *([replace(self, batch=left)] if left else [])]


@dataclass(frozen=True)
class Prediction:
    """Bytes and seconds. `peak` is what PyTorch's allocator holds at most in training."""

    peak: int
    weights: int  # of the transformer on the card
    adapter: int  # LoRA with its optimizer
    state: int  # of the optimizer alone
    activations: int
    host: int  # of weights, activations and optimizer in host memory
    on_disk: bool  # whether offloaded weights lie in a file, as the host's memory is too small for them
    seconds: float  # of an optimizer step
    compile_seconds: float
    host_lacks: int = 0  # bytes of what is to lie in host memory that are not there


@dataclass
class Predictor:
    """Predictions for one model, adapter and set of micro-batches on one card, from rehearsals that are made once in a process."""

    family: ModelFamily
    adapter: AdapterSettings
    micros: Sequence[Micro]
    card: Card
    dtype: torch.dtype
    accumulation: int = 1
    experts: int = 1  # transformers that are trained in turns
    stored: StoredWeights | None = None  # none: all is loaded in `dtype`
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    host: float = math.inf  # bytes of host memory that may be taken
    before: Callable[[], object] = lambda: None  # called before each rehearsal; what it raises ends the prediction

    def micros_of(self, choices: Choices) -> list[Micro]:
        """The micro-batches as they are computed."""
        return [piece for micro in self.micros for piece in micro.in_pieces(choices.at_once)]

    def largest(self, choices: Choices) -> Micro:
        """The one of them that takes most memory: most elements of latents."""
        return max(self.micros_of(choices), key=Micro.size)

    @cached_property
    def sizes(self) -> Sizes:
        """Numbers of weights."""
        return sizes_of(self.family, self.adapter)

    @cached_property
    def _key(self) -> tuple[object, ...]:
        return model_key(self.family, self.family.transformer_config)

    def rehearsal(self, micro: Micro, choices: Choices) -> Rehearsal:
        """A step's rehearsal under these choices."""
        from .rehearsal import mixed

        lighter = lighter_blocks(choices, self.sizes.blocks)
        plain = self._rehearsed(micro, choices, choices.checkpointing)
        return mixed(plain, self._rehearsed(micro, choices, LIGHTER[choices.checkpointing]), lighter) if lighter else plain

    def _rehearsed(self, micro: Micro, choices: Choices, checkpointing: Checkpointing) -> Rehearsal:
        from .rehearsal import Rehearsed, as_much_at_once, rehearse

        form = self.form(choices)
        checkpointing = "full" if checkpointing == "offloaded" else checkpointing
        whole = choices.compile and bool(form)
        given = micro.shapes, self.adapter, micro.batch, checkpointing, form, choices.fp8_products, whole, self.dtype

        def rehearsed() -> Rehearsed:
            self.before()
            return rehearse(self.family, *given)

        found = remembered((*self._key, *given), rehearsed)
        if not choices.compile:
            return found.plain
        if checkpointing not in ("full", "selective"):
            return found.fused
        return as_much_at_once(found.fused, self._rehearsed(micro, replace(choices, compile=False), checkpointing))

    def form(self, choices: Choices) -> str:
        """How linear layers in blocks are held, as FrozenWeight calls it; empty where they are in the run's precision."""
        from .quantize import NAMES

        if choices.weights == "as stored":
            return self.stored.form if self.stored else ""
        return "" if choices.weights == "unquantized" else NAMES[choices.weights]

    def in_fp8(self, choices: Choices) -> bool:
        """Whether they are held as numbers that cards multiply in fp8."""
        from .fp8_products import FORM

        return self.form(choices) == FORM

    def weight_size(self, choices: Choices) -> float:
        """Bytes of a weight of a linear layer in a block."""
        from .forms import weight_size

        if choices.weights == "as stored" and self.stored:
            return self.stored.size
        form = self.form(choices)
        return weight_size(form) if form else self.dtype.itemsize

    def offloaded(self, choices: Choices) -> int:
        """How many blocks' weights lie on the host."""
        return offloaded_blocks(choices, self.sizes.blocks)

    def weights_on_card(self, choices: Choices) -> int:
        """Bytes of the transformer's weights on the card; of offloaded blocks their places are there."""
        sizes, out = self.sizes, self.offloaded(choices)
        return int(self._block(choices) * (sizes.blocks - out + min(PLACES, out) * sizes.largest) + self._outside(choices))

    def _block(self, choices: Choices) -> float:
        """Bytes of a block's weights, the mean."""
        sizes = self.sizes
        return (self.weight_size(choices) * sizes.linear + self.dtype.itemsize * (sizes.in_blocks - sizes.linear)) / sizes.blocks

    def _outside(self, choices: Choices) -> float:
        """Bytes of the weights outside of the blocks."""
        saved = self.stored.saved if self.stored and choices.weights != "unquantized" else 0
        return self.dtype.itemsize * self.sizes.outside - saved

    def predict(self, choices: Choices) -> Prediction:
        """What a step takes."""
        rehearsal, sizes = self.rehearsal(self.largest(choices), choices), self.sizes
        block, outside, out = self._block(choices), self._outside(choices), self.offloaded(choices)
        weights = self.weights_on_card(choices)
        trained = self.optimizer, sizes.layers, self.adapter.rank
        state = state_on_card(*trained)
        adapter = weight_bytes(self.adapter) * sizes.adapter + state
        activations, host = self._activations(choices, rehearsal), int(block * out) + state_on_host(*trained)
        if choices.checkpointing == "offloaded":
            moved = sum(part.boundary * part.kind.count for part in rehearsal.parts)
            stay = AHEAD * max(part.boundary for part in rehearsal.parts)
            activations, host = activations - max(moved - stay, 0), host + moved
        host += (self.experts - 1) * int(block * sizes.blocks + outside)
        on_disk = out > 0 and host > self.host
        host -= int(block * out) if on_disk else 0
        return Prediction(
            weights + adapter + activations + WORKSPACE, weights, adapter, state, activations, host, on_disk,
            self._seconds(choices, block * out, on_disk), self._compiling(choices, rehearsal), int(max(host - self.host, 0)),
        )  # fmt: skip

    def _activations(self, choices: Choices, rehearsal: Rehearsal) -> int:
        """Bytes that are alive at most beside weights, LoRA and optimizer.

        Compiled code keeps weights that it dequantised until their second use: those of the block that it computes again, and of each
        block of which it computes nothing again (PyTorch 2.11's Inductor on an H200).
        """
        if not choices.compile or not self.form(choices) or choices.fp8_products:
            return rehearsal.peak
        blocks, way = self.sizes.blocks, choices.checkpointing
        kept = blocks if way == "off" else lighter_blocks(choices, blocks) if LIGHTER.get(way) == "off" else 0
        kept += way in ("full", "offloaded")
        return rehearsal.peak + kept * self.dtype.itemsize * self.sizes.linear // blocks

    def _seconds(self, choices: Choices, copied: float, on_disk: bool) -> float:
        """Seconds of a step, the mean over the micro-batches; copies of offloaded weights run beside the arithmetic."""
        total = 0.0
        for micro in self.micros_of(choices):
            rehearsal = self.rehearsal(micro, choices)
            computed = gradient_seconds(rehearsal, self.card, self.dtype, choices.compile)
            kept = sum(part.boundary * part.kind.count for part in rehearsal.parts) if choices.checkpointing == "offloaded" else 0
            moved = copy_seconds(2 * copied, 2 * kept, self.card, on_disk)  # once forward and once backward
            total += micro.count * max(computed, moved)
        return total * self.accumulation + update_seconds(self.sizes.adapter, self.card)

    def _compiling(self, choices: Choices, rehearsal: Rehearsal) -> float:
        shapes = {(micro.shapes, micro.batch) for micro in self.micros_of(choices)}
        return compile_seconds(rehearsal, len(shapes)) if choices.compile else 0.0


@dataclass(frozen=True)
class Sizes:
    """Weights of a transformer: of the linear layers in its blocks, of all in its blocks, outside of them, and of its LoRA.

    `layers` are those that have a LoRA.
    """

    linear: int
    in_blocks: int
    outside: int
    adapter: int
    blocks: int
    largest: float  # of the blocks, over their mean
    layers: Layers


def sizes_of(family: ModelFamily, adapter: AdapterSettings) -> Sizes:
    """Counted on the transformer without weights."""
    from .blocks import blocks_of

    skeleton, shapes = family.skeleton, family.layer_shapes
    blocks = blocks_of(skeleton)
    inside = tuple(f"{name}." for name in blocks)
    linear = sum(rows * columns for name, (rows, columns) in shapes.items() if name.startswith(inside))
    each = [sum(parameter.numel() for parameter in block.parameters()) for block in blocks.values()]
    in_blocks = sum(each)
    whole = sum(tensor.numel() for tensor in (*skeleton.parameters(), *skeleton.buffers()))
    targets = re.compile(family.spec.adapter_targets[adapter.targets])
    layers = tuple(Counter(shape for name, shape in shapes.items() if targets.fullmatch(name)).items())
    largest = max(each) * len(each) / in_blocks
    return Sizes(linear, in_blocks, whole - in_blocks, trained_numbers(layers, adapter.rank), len(blocks), largest, layers)
