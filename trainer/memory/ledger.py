"""Ledger: what a computation on fake tensors would do on a card: its operations, and the bytes that are alive at each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import finalize

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakIdKeyDictionary

from .control_values import Masks, kept_real, waits

aten = torch.ops.aten
ATTENTION = {aten._scaled_dot_product_flash_attention, aten._scaled_dot_product_efficient_attention}
ATTENTION_BACKWARD = {aten._scaled_dot_product_flash_attention_backward, aten._scaled_dot_product_efficient_attention_backward}
BLOCK = 512  # bytes to which PyTorch's allocator rounds


class Operation(NamedTuple):
    """One kernel. `flops` of products and attention, `moved` bytes read and written."""

    kind: str  # product, fp8 product, attention, narrow attention (heads of up to 64 channels), masked attention, pointwise
    flops: int
    moved: int
    numbers: int = 0  # that a product gives


@dataclass(eq=False)
class Stretch:
    """A part of the computation, such as the forward pass of a block."""

    name: str
    operations: Counter[Operation] = field(default_factory=Counter)
    fused: int = 0  # bytes that pointwise operations would move if a compiler fused those that follow each other
    waits: int = 0  # times that the host waits for a value from the card


@dataclass(eq=False)
class Storage:
    """A piece of memory from `start` to `end`, in operations since the beginning; `end` is -1 while it is alive."""

    size: int
    start: int
    stretch: Stretch
    written: bool  # whether it would be written to memory too if pointwise operations were fused
    end: int = -1
    cluster: int = -1  # of pointwise operations between two others, in which it was read last

    def freed_by(self, time: int) -> bool:
        """Whether it is gone after so many operations."""
        return 0 <= self.end <= time


@dataclass(eq=False)
class Entry:
    """An operation that took place, and the memory that it read and wrote, as far as that is counted."""

    time: int
    stretch: Stretch
    plain: bool  # element by element
    read: tuple[Storage, ...]
    made: tuple[Storage, ...]
    call: tuple[object, ...] | None  # function and arguments: equal calls give the same; None: it writes to memory that was there before
    converted: tuple[torch.dtype, torch.dtype] | None  # of a conversion: from and to


class Ledger(TorchDispatchMode):
    """Counts while it is active, and with `listed` keeps an entry for each operation. `stretch` is what operations belong to now."""

    def __init__(self, masks: Masks, listed: bool = False) -> None:
        super().__init__()
        self.masks, self._listed = masks, listed
        self.time = 0
        self.storages: list[Storage] = []
        self.stretches: list[Stretch] = []
        self.entries: list[Entry] = []
        self.begun: list[tuple[int, str]] = []  # when each stretch began
        self._known: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._cluster = 0
        self.begin("start")

    def begin(self, name: str) -> None:
        """A new stretch; one of a name that was there before goes on."""
        found = next((stretch for stretch in self.stretches if stretch.name == name), None)
        if found is None:
            found = Stretch(name)
            self.stretches.append(found)
        self.stretch = found
        self.begun.append((self.time, name))
        self._cluster += 1

    def leave_out(self, tensors: Iterable[Tensor]) -> None:
        """Tensors whose memory is not counted, such as weights."""
        for tensor in tensors:
            self._known[tensor.untyped_storage()] = Storage(0, 0, self.stretch, written=True)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if waits(func, args):
            self.stretch.waits += 1
        real = kept_real(func, args, kwargs)
        if real is not None:
            return real
        out = self.masks(func, args, kwargs)
        if out is None:
            out = func(*args, **kwargs)
        self.count(func, args, kwargs, out)
        return out

    def count(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Enters an operation and what it allocates."""
        self.time += 1
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, FakeTensor)]
        made = [leaf for leaf in tree_leaves(out) if isinstance(leaf, FakeTensor)]
        kind = _kind(func._overloadpacket, given)
        plain = kind == "pointwise"
        fresh = [tensor for tensor in made if self._enter(tensor, written=not plain)]
        if plain and (not fresh and not _writes(func)):
            return  # a view
        if func._overloadpacket in (aten._local_scalar_dense, aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.detach):
            return
        moved = sum(map(_bytes, [*given, *(fresh or made)]))
        mask = args[4 if func._overloadpacket in ATTENTION_BACKWARD else 3] if kind == "masked attention" else None
        if mask is not None and _by_rows(mask):
            moved += mask.numel() * 2  # every head reads it
        flops = 0 if plain else flop_registry[func._overloadpacket](*args, **kwargs, out_val=out)
        self.stretch.operations[Operation(kind, int(flops), moved, 0 if plain else made[0].numel())] += 1
        if not plain:
            self._cluster += 1
        if self._listed:
            call = (func, *map(self._identity, tree_leaves((args, kwargs)))) if fresh and not _writes(func) else None
            converted = (given[0].dtype, made[0].dtype) if given and func._overloadpacket is aten._to_copy else None
            read, written = self._counted(given), self._counted(fresh or made)
            self.entries.append(Entry(self.time, self.stretch, plain, read, written, call, converted))
        for tensor in given:
            self._read(tensor, plain)
        if func._overloadpacket in ATTENTION_BACKWARD:
            self._scratch(4 * given[1].numel())  # the kernels sum up the queries' gradient in float32

    def storage(self, tensor: Tensor) -> Storage | None:
        """The entry of a tensor's memory; None if it is not counted."""
        found: Storage | None = self._known.get(tensor.untyped_storage())
        return found

    def _identity(self, value: object) -> object:
        """What is equal for arguments that hold the same numbers."""
        if not isinstance(value, FakeTensor):
            return str(value)
        return self.storage(value), value.storage_offset(), value.shape, value.stride(), value.dtype

    def _counted(self, tensors: Iterable[Tensor]) -> tuple[Storage, ...]:
        found = (self.storage(tensor) for tensor in tensors)
        return tuple(dict.fromkeys(storage for storage in found if storage is not None and storage.size))

    def _enter(self, tensor: Tensor, written: bool) -> bool:
        """Whether the tensor's memory is new; it is freed when nothing holds it any more."""
        memory = tensor.untyped_storage()
        if memory in self._known:
            return False
        storage = Storage(-(-memory.nbytes() // BLOCK) * BLOCK, self.time, self.stretch, written)
        self._known[memory] = storage
        self.storages.append(storage)
        finalize(memory, self._free, storage)
        return True

    def _read(self, tensor: Tensor, plain: bool) -> None:
        """Enters what a fusing compiler would write and read: what crosses the border of a run of pointwise operations."""
        storage = self.storage(tensor)
        if storage is None:
            if plain:
                self.stretch.fused += _bytes(tensor)
            return
        if not storage.written and (not plain or storage.stretch is not self.stretch):
            storage.written = True
            storage.stretch.fused += storage.size
        if plain and storage.written and storage.cluster != self._cluster:
            self.stretch.fused += _bytes(tensor)
            storage.cluster = self._cluster

    def _scratch(self, size: int) -> None:
        """Memory that an operation needs while it runs."""
        self.storages.append(Storage(size, self.time, self.stretch, True, end=self.time))

    def _free(self, storage: Storage) -> None:
        storage.end = self.time

    def alive(self, fused: bool = False) -> list[int]:
        """Bytes alive at each operation; with `fused` half of what a perfectly fusing compiler would not write, as real ones do."""
        changes = [0] * (self.time + 2)
        for storage in self.storages:
            size = storage.size if storage.written or not fused else storage.size // 2
            changes[storage.start] += size
            if storage.end >= 0:
                changes[storage.end + 1] -= size
        total, found = 0, []
        for change in changes:
            total += change
            found.append(total)
        return found


def _kind(packet: Any, given: list[FakeTensor]) -> str:
    if packet in ATTENTION or packet in ATTENTION_BACKWARD:
        narrow = "narrow attention" if given[0].shape[-1] <= 64 else "attention"
        return "masked attention" if "efficient" in str(packet) else narrow
    if packet not in flop_registry:
        return "pointwise"
    return "fp8 product" if any(tensor.element_size() == 1 for tensor in given) else "product"


def _by_rows(mask: Any) -> bool:
    """Whether a mask [B, heads, rows, columns] differs from row to row."""
    return isinstance(mask, Tensor) and mask.dim() == 4 and mask.stride(-2) != 0


def _writes(func: Any) -> bool:
    return any(argument.alias_info is not None and argument.alias_info.is_write for argument in func._schema.arguments)


def _bytes(tensor: Tensor) -> int:
    """What reading the tensor moves: of one that is expanded its memory."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
