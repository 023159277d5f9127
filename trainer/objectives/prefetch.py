"""Micro-batches made ahead of their time: what the next one needs is read, drawn and copied while the device computes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from .base import MicroBatch

if TYPE_CHECKING:
    from types import TracebackType

    import torch
    from torch import Tensor, nn

    from .base import Objective

_NO_STEP = -1


class Prefetched:
    """An objective whose micro-batches come from the host one ahead, each made in a thread while the one before it is trained.

    `objective` makes them on the host; what it draws is keyed, so that the time at which it is drawn cannot matter. `last` is the
    last step that there is. Of a card they are copied from pinned memory on a stream of their own. An error of the thread is raised
    where the micro-batch that it was to make is asked for. Leaving the context ends the thread, once it is done with the micro-batch
    that it is at.
    """

    def __init__(self, objective: Objective, device: torch.device, last: int) -> None:
        import torch

        self._objective, self._device, self._last = objective, device, last
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._thread = ThreadPoolExecutor(1, "micro-batches")
        self._next: Future[_Copied | None] = Future()
        self._source: Iterator[_Copied | None] = iter(())
        self._step = _NO_STEP  # whose micro-batches come next

    def __enter__(self) -> Prefetched:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def loss(self, transformer: nn.Module, batch: MicroBatch) -> Tensor:
        """The objective's own."""
        return self._objective.loss(transformer, batch)

    def collect(self, step: int) -> Iterator[MicroBatch]:
        """The micro-batches of optimizer step `step`, on the device; any step may be asked for, and the one after the last is ready."""
        if step != self._step:
            self._source = self._from(step)
            self._order()
        self._step = _NO_STEP  # should this one not be finished, it is made again
        while (copied := self._taken()) is not None:
            yield copied.received()
        self._step = step + 1

    def _taken(self) -> _Copied | None:
        """What was ordered; the next is ordered with it."""
        taken = self._next.result()
        self._order()
        return taken

    def _order(self) -> None:
        self._next = self._thread.submit(next, self._source, None)

    def _from(self, step: int) -> Iterator[_Copied | None]:
        """All micro-batches from a step on, after those of each step None; run in the thread."""
        for number in range(step, self._last + 1):
            for batch in self._objective.collect(number):
                yield _Copied(batch, self._device, self._stream)
            yield None


class _Copied:
    """A micro-batch on its way from the host to the device."""

    def __init__(self, batch: MicroBatch, device: torch.device, stream: torch.cuda.Stream | None) -> None:
        """Begins the copy, on a stream if there is one."""
        import torch

        self._device, self._done = device, None
        if stream is None:
            self._batch = batch.each(lambda tensor: tensor.to(device))
            return
        with torch.cuda.stream(stream):
            self._batch = batch.each(lambda tensor: _pinned(tensor).to(device, non_blocking=True))
            self._done = stream.record_event()

    def received(self) -> MicroBatch:
        """The micro-batch for the thread's current stream, which waits for the copy; the host does not."""
        import torch

        if self._done is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(self._done)
            for tensor in self._batch.tensors:
                tensor.record_stream(current)  # or the copying stream would use its memory again while this one still reads it
        return self._batch


def _pinned(tensor: Tensor) -> Tensor:
    return tensor.contiguous().pin_memory() if tensor.numel() else tensor
