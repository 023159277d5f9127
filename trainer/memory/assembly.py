"""Putting a transformer together for a run: what its blocks keep, what is compiled, where its weights lie.

The order is fixed: weights are loaded and quantised, the adapter is attached, then checkpointing, compiling, block swap.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import torch
from torch import Tensor, nn

from ..errors import fail
from .activations import HostActivations
from .blocks import blocks_of
from .card import GB
from .checkpointing import checkpointed
from .choices import LIGHTER, Checkpointing, Choices, lighter_blocks, offloaded_blocks
from .frozen import set_fp8_products
from .host_memory import HostBytes, remove_left_over
from .swap import BlockSwap, before_backward, frozen_tensors

if TYPE_CHECKING:
    from ..events import EventLog

DISK_RESERVE = GB


class Assembly:
    """A transformer with its adapter, set up as `choices` say; `place` and `park` move it, `undo` takes all back."""

    def __init__(
        self, transformer: nn.Module, choices: Choices, device: torch.device, log: EventLog, scratch: Path | None = None,
        random: bool = False,
    ) -> None:  # fmt: skip
        self.transformer, self.choices, self._device, self._log = transformer, choices, device, log
        self.placed = False  # whether all lies where `place` puts it; tensors that are added later make it False again
        self._blocks = list(blocks_of(transformer).values())
        self._set_forward(random)
        if not set_fp8_products(transformer, device, choices.fp8_products) and choices.fp8_products:
            log.notice("No layer has fp8 weights that this card can multiply: products are in the run's precision.", "compute.fp8_products")
        self._swap = self._swapped(scratch)
        swapped = {id(block) for block in (self._swap.blocks if self._swap else ())}
        # the others get the same node in their graph, so that gradients are added up in one order whatever is swapped
        self._nodes = [before_backward(block, lambda: None) for block in self._blocks if id(block) not in swapped]

    def place(self) -> None:
        """Moves to the device what is to lie there."""
        if not self.placed:
            self._move(self._device)
            self.placed = True

    def park(self) -> None:
        """Moves everything to the host."""
        if self._swap:
            self._swap.park()
        self._move(torch.device("cpu"))
        self.placed = False

    def undo(self) -> None:
        """Leaves the transformer on the host as it was, but for products in fp8, which the next assembly sets."""
        self.park()
        if self._swap:
            self._swap.leave()
        self.close()
        for node in self._nodes:
            node.remove()
        for block in self._blocks:
            block.__dict__.pop("forward", None)

    def close(self) -> None:
        """Gives back what offloaded weights lie in; the transformer cannot be used any more, unless it was undone."""
        if self._swap:
            self._swap.close()
            self._swap = None

    def _set_forward(self, random: bool) -> None:
        choices, host, total = self.choices, HostActivations(self._device), len(self._blocks)
        first = total - lighter_blocks(choices, total)
        made: dict[tuple[type[nn.Module], Checkpointing], Callable[..., Any]] = {}
        for number, block in enumerate(self._blocks):
            way = choices.checkpointing if number < first else LIGHTER[choices.checkpointing]
            if way == "off" and not choices.compile:
                continue
            kind = type(block), way
            if kind not in made:
                made[kind] = checkpointed(*kind, random, choices.compile, host)
            block.__dict__["forward"] = partial(made[kind], block)

    def _swapped(self, scratch: Path | None) -> BlockSwap | None:
        """Of the blocks as many as are to lie on the host, spread evenly, so that each copy has the others' work to hide behind."""
        count = offloaded_blocks(self.choices, len(self._blocks))
        if not count:
            return None
        total = len(self._blocks)
        chosen = [block for number, block in enumerate(self._blocks) if (number + 1) * count // total > number * count // total]
        pin, folder = self._device.type == "cuda", scratch if self.choices.on_disk else None
        if folder:
            _require_room(folder, sum(map(BlockSwap.bytes_of, chosen)))
        hosts: list[HostBytes] = []

        def host_of(size: int) -> HostBytes:
            self._log.check()
            hosts.append(HostBytes(size, pin, folder / f"{uuid4().hex}.bin" if folder else None))
            return hosts[-1]

        swap = BlockSwap(chosen, self._device, host_of)
        if pin and not folder and not all(host.pinned for host in hosts):
            self._log.notice("The system does not let all of the offloaded weights be pinned: copies take about twice as long.", "memory")
        return swap

    def _move(self, device: torch.device) -> None:
        for tensor in self._own_tensors():
            if tensor.device != device:
                tensor.data = tensor.data.to(device)
            if tensor.grad is not None:
                tensor.grad = tensor.grad.to(device)

    def _own_tensors(self) -> Iterator[Tensor]:
        """All tensors but those that are swapped."""
        swapped = {id(tensor) for block in (self._swap.blocks if self._swap else ()) for tensor in frozen_tensors(block)}
        yield from (t for t in (*self.transformer.parameters(), *self.transformer.buffers()) if id(t) not in swapped)


def _require_room(folder: Path, size: int) -> None:
    """Raises UserError if a disk cannot take so many bytes: writing to a mapped file on a full one ends the process."""
    folder.mkdir(parents=True, exist_ok=True)
    remove_left_over(folder)
    if (free := shutil.disk_usage(folder).free) < size + DISK_RESERVE:
        found = f"has {free / GB:.1f} GiB free, and offloaded weights need {size / GB:.1f}: neither card nor host memory holds them."
        raise fail(str(folder), found, "Free some of that disk, or set memory.weights to nf4.")
