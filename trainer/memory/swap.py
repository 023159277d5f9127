"""Block swap: frozen weights that lie in the host's memory and are on the device only while their block computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from .choices import PLACES
from .host_memory import HostBytes

Moment = Any  # an event of a stream, as torch.cuda.Event
ALIGNMENT = 256  # bytes, of each tensor in a block's memory
CACHE_LINE = 64  # bytes, to which torch aligns memory on the host


class BlockSwap:
    """Streams the frozen tensors of some blocks through a ring of places on the device; they are never copied back.

    Before a block's forward pass, and by a node of autograd on what it returns before its backward pass, its tensors are
    pointed at a place that holds them, and the copy of the next block begins into the other. What is trained stays where
    it is. On a CPU the same is done between two places of its memory, where each tensor lies as far from a cache line's start
    as it did in its mapped file: a CPU's matrix products round by that, and so give what they give without a swap.
    """

    def __init__(self, blocks: Sequence[nn.Module], device: torch.device, host_of: Callable[[int], HostBytes]) -> None:
        """Moves the blocks' frozen tensors, one block after the other, into memory that `host_of` gives for so many bytes."""
        self._device, self.blocks = device, list(blocks)
        shifted = device.type == "cpu"
        self._held = [_Held(block, host_of(self.bytes_of(block, shifted)), shifted) for block in blocks]
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._thread = ThreadPoolExecutor(1, "block swap")  # so that copies from memory that is not pinned do not hold up the run
        self._places: list[Tensor] = []
        self._lies: list[int | None] = [None] * PLACES  # the block whose weights each place holds, or will when `_coming` is done
        self._coming: dict[int, Future[Moment | None]] = {}
        self._hooks = [
            hook
            for number, block in enumerate(blocks)
            for hook in (
                block.register_forward_pre_hook(lambda *_, number=number: self._enter(number, forward=True)),
                before_backward(block, lambda number=number: self._enter(number, forward=False)),
            )
        ]

    @staticmethod
    def bytes_of(block: nn.Module, shifted: bool = False) -> int:
        """What the frozen tensors of a block need, each as far from a cache line's start as now if `shifted`."""
        return sum(_aligned(shifted * _shift(tensor) + tensor.nbytes) for tensor in frozen_tensors(block))

    def park(self) -> None:
        """Takes nothing of the device until a block computes again: all weights lie in the host's memory alone."""
        self._settle()
        for held in self._held:
            held.point_at(held.host.data)
        self._lies = [None] * PLACES
        self._places.clear()

    def leave(self) -> None:
        """Gives the blocks' tensors memory of their own, on the host."""
        self.park()
        for held in self._held:
            held.point_at(held.host.data.clone())

    def close(self) -> None:
        """Ends the swapping and gives the memory back, whether or not the tensors have left it."""
        with suppress(RuntimeError):  # of a card that failed, which has been told already
            self._settle()
        self._places.clear()
        for hook in self._hooks:
            hook.remove()
        self._thread.shutdown()
        for held in self._held:
            held.host.close()

    def _settle(self) -> None:
        """Waits for copies that are under way: their places and the host's memory may then be used for something else."""
        for coming in self._coming.values():
            if event := coming.result():
                event.synchronize()
        self._coming.clear()

    def _enter(self, number: int, forward: bool) -> None:
        """Points a block's tensors at its weights on the device, and starts the copy of those that are needed next."""
        if not self._places:
            size = max(held.size for held in self._held)
            self._places = [torch.empty(size, dtype=torch.uint8, device=self._device) for _ in range(PLACES)]
        if number not in self._lies:
            self._bring(number, self._free_place(number))
        ready = self._coming.pop(number, None)
        if ready and (event := ready.result()):
            torch.cuda.current_stream(self._device).wait_event(event)
        place = self._lies.index(number)
        self._held[number].point_at(self._places[place])
        following = self._following(number, forward)
        if following is not None and following not in self._lies:
            self._bring(following, 1 - place)

    def _following(self, number: int, forward: bool) -> int | None:
        if not forward:
            return number - 1 if number else None
        if number + 1 < len(self._held):
            return number + 1
        return None if torch.is_grad_enabled() else 0  # sampling begins again at once; training comes back from here

    def _free_place(self, number: int) -> int:
        """A place that holds nothing, else the one whose block is further away."""
        if None in self._lies:
            return self._lies.index(None)
        return max(range(PLACES), key=lambda place: abs((self._lies[place] or 0) - number))

    def _bring(self, number: int, place: int) -> None:
        """Starts the copy of a block's weights into a place, once what computes with those there is done."""
        gone = self._lies[place]
        if gone is not None and (coming := self._coming.pop(gone, None)):
            coming.result()
        if gone is not None:
            self._held[gone].point_at(self._held[gone].host.data)
        self._lies[place] = number
        used = torch.cuda.current_stream(self._device).record_event() if self._stream else None
        self._coming[number] = self._thread.submit(self._copy, number, place, used)

    def _copy(self, number: int, place: int, used: Moment | None) -> Moment | None:
        host = self._held[number].host
        with torch.cuda.stream(self._stream) if self._stream else nullcontext():
            if self._stream and used:
                self._stream.wait_event(used)
            self._places[place][: host.data.numel()].copy_(host.data, non_blocking=True)
            return self._stream.record_event() if self._stream else None


def before_backward(block: nn.Module, call: Callable[[], None]) -> RemovableHandle:
    """Makes `call` be called in each backward pass before the block's part of it begins."""

    def watched(_: nn.Module, __: Any, output: Any) -> Any:
        flat = list(output) if isinstance(output, tuple) else [output]
        places = [at for at, tensor in enumerate(flat) if isinstance(tensor, Tensor) and tensor.requires_grad]
        if not places or not torch.is_grad_enabled():
            return output
        for at, tensor in zip(places, _Before.apply(call, *(flat[at] for at in places)), strict=True):
            flat[at] = tensor
        return tuple(flat) if isinstance(output, tuple) else flat[0]

    return block.register_forward_hook(watched)


class _Before(torch.autograd.Function):
    """Tensors unchanged; going back, something is called before their gradients go on."""

    @staticmethod
    def forward(ctx: Any, call: Callable[[], None], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.call = call
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.call()
        return (None, *grads)


class _Held:
    """A block's frozen tensors and the host's memory that holds them, one behind the other."""

    def __init__(self, block: nn.Module, host: HostBytes, shifted: bool) -> None:
        self.host, self._tensors, self._spans = host, frozen_tensors(block), []
        start = 0
        for tensor in self._tensors:
            shift = shifted * _shift(tensor)
            self._spans.append((start + shift, tensor.shape, tensor.dtype))
            _view(host.data, *self._spans[-1]).copy_(tensor)
            start += _aligned(shift + tensor.nbytes)
        self.size = start
        self.point_at(host.data)

    def point_at(self, memory: Tensor) -> None:
        """Makes the tensors' data lie in [size] uint8 memory."""
        for tensor, span in zip(self._tensors, self._spans, strict=True):
            tensor.data = _view(memory, *span)


def frozen_tensors(block: nn.Module) -> list[Tensor]:
    """The parameters of a module that need no gradient, and its buffers, each once."""
    found = {id(p): p for p in (*block.parameters(), *block.buffers()) if not p.requires_grad}
    return list(found.values())


def _view(memory: Tensor, start: int, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    return memory[start : start + shape.numel() * dtype.itemsize].view(dtype).view(shape)


def _shift(tensor: Tensor) -> int:
    """Bytes from the start of a cache line to a tensor in the host's memory; 0 where its numbers would not lie on whole places."""
    shift = tensor.data_ptr() % CACHE_LINE if tensor.device.type == "cpu" else 0
    return 0 if shift % tensor.element_size() else shift


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
