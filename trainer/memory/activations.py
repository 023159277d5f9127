"""Activations that wait in the host's memory from the forward to the backward pass."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


class HostActivations:
    """Takes what blocks keep to the host and brings it back, each one ahead of its use, on a stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._last: weakref.ref[_Kept] | None = None

    @contextmanager
    def keeping(self, tensors: Sequence[Tensor]) -> Iterator[None]:
        """Of what autograd saves inside the block, these tensors go to the host."""
        wanted = {tensor.data_ptr() for tensor in tensors}

        def pack(tensor: Tensor) -> Tensor | _Kept:
            return self._put(tensor) if tensor.data_ptr() in wanted else tensor

        def unpack(kept: Tensor | _Kept) -> Tensor:
            return kept.take(self._device) if isinstance(kept, _Kept) else kept

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            yield

    def _put(self, tensor: Tensor) -> _Kept:
        kept = _Kept(tensor, self._stream, self._last)
        self._last = weakref.ref(kept)
        return kept


class _Kept:
    """One tensor's copy on the host, which autograd holds; it knows the one that was kept before it and is asked for next."""

    def __init__(self, tensor: Tensor, stream: torch.cuda.Stream | None, before: weakref.ref[_Kept] | None) -> None:
        self._stream, self._before, self._back = stream, before, None
        if stream is None:
            self._host = tensor.detach().clone()
            return
        self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        stream.wait_stream(torch.cuda.current_stream(tensor.device))
        with torch.cuda.stream(stream):
            self._host.copy_(tensor, non_blocking=True)
        tensor.record_stream(stream)

    def fetch(self, device: torch.device) -> None:
        """Starts the copy back."""
        if self._stream is None or self._back is not None:
            return
        with torch.cuda.stream(self._stream):
            self._back: Tensor | None = self._host.to(device, non_blocking=True)

    def take(self, device: torch.device) -> Tensor:
        """The tensor on the device, ready for the current stream; starts the copy of the one before it."""
        if self._stream is None:
            return self._host
        self.fetch(device)
        back, self._back = self._back, None
        assert back is not None
        current = torch.cuda.current_stream(device)
        current.wait_stream(self._stream)
        back.record_stream(current)
        if self._before and (before := self._before()):
            before.fetch(device)
        return back
