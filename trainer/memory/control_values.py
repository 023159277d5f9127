"""Small tensors that decide what is computed keep their values while the large ones are fake."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

aten = torch.ops.aten
MOST = 1 << 22  # elements of a tensor that keeps its values


def waits(func: Any, args: Any) -> bool:
    """Whether an operation's result has to come back from the card before the next one can be started."""
    packet = func._overloadpacket
    if packet in (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_):
        return any(index is not None and index.dtype == torch.bool for index in args[1])
    return packet in (aten._local_scalar_dense, aten.nonzero)


def kept_real(func: Any, args: Any, kwargs: Any) -> Any:
    """The result of an operation on small real tensors alone, such as masks and timesteps; None for any other."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    if not tensors or any(isinstance(tensor, FakeTensor) or tensor.numel() > MOST for tensor in tensors):
        return None
    if func._overloadpacket in (aten.expand, aten.repeat, aten.bmm, aten.mm):  # what may become large
        sizes = [leaf for leaf in tree_leaves(args[1]) if isinstance(leaf, int)] if len(args) > 1 else []
        if torch.Size(size for size in sizes if size > 0).numel() > MOST:
            return None
    with unset_fake_temporarily():
        return func(*args, **kwargs)


class Masks:
    """Selections by masks whose values are not known: how many elements they pick is assumed.

    A mask picks all, one of tokens routed to one of `experts` alike layers its share of them, and the opposite of a mask
    the rest. A condition is taken to hold.
    """

    def __init__(self) -> None:
        self.experts = 1  # of the layer that computes now
        self._share: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def watch(self, model: nn.Module) -> None:
        """Follows which routed layer of a model computes."""
        for module in model.modules():
            experts = getattr(module, "experts", None)
            if isinstance(experts, nn.ModuleList):
                module.register_forward_pre_hook(partial(self._route, len(experts)))
                module.register_forward_hook(partial(self._route, 1))

    def _route(self, experts: int, *_: object) -> None:
        self.experts = experts

    def __call__(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of an operation with a mask; None for any other."""
        packet = func._overloadpacket
        if packet is aten.bitwise_not and isinstance(args[0], FakeTensor) and args[0].dtype == torch.bool:
            out = func(*args, **kwargs)
            self._share[out.untyped_storage()] = 1 - self._of(args[0])
            return out
        if packet is aten._local_scalar_dense and args[0].dtype == torch.bool:
            return True
        if packet is aten.eq and self.experts > 1:
            out = func(*args, **kwargs)
            self._share[out.untyped_storage()] = 1 / self.experts
            return out
        if packet is aten.index and (picked := self._picked(args[1])) is not None:
            return func(args[0], picked)
        if packet in (aten.index_put, aten.index_put_, aten._index_put_impl_) and self._picked(args[1]) is not None:
            return args[0].clone() if packet is aten.index_put else args[0]
        return None

    def _of(self, mask: Tensor) -> float:
        share: float | None = self._share.get(mask.untyped_storage())
        return 1.0 if share is None else share

    def _picked(self, indices: Any) -> list[Tensor | None] | None:
        """The indices with each mask as the places that it picks; None if there is no mask."""
        if not any(index is not None and index.dtype == torch.bool for index in indices):
            return None
        found: list[Tensor | None] = []
        for index in indices:
            if index is None or index.dtype != torch.bool:
                found.append(index)
            elif isinstance(index, FakeTensor):
                found += [torch.empty(round(index.numel() * self._of(index)), dtype=torch.int64)] * index.dim()
            else:
                with unset_fake_temporarily():
                    found += index.nonzero(as_tuple=True)
        return found
