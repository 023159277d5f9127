"""What an optimizer keeps of the numbers that it trains: bytes on the card and on the host, as its settings say."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..optimizer_kinds import KINDS

if TYPE_CHECKING:
    from ..job import AdapterSettings
    from ..optimizer_settings import OptimizerSettings

Shape = tuple[int, int]
Layers = tuple[tuple[Shape, int], ...]  # rows and columns of layers that have a LoRA, and how many there are of each
ON_HOST = 8  # bytes a number beside the state where that is offloaded: torchao keeps the weights and their gradients there too
SMALL = 512  # rows and columns of the layer that stands for all where an optimizer must be tried on real numbers
STEPS = 2  # after which all state is there


def weight_bytes(adapter: AdapterSettings) -> int:
    """Bytes of a number of the adapter on the card."""
    return 2 if adapter.precision == "bf16" else 4


def trained_numbers(layers: Layers, rank: int) -> int:
    """How many numbers the LoRA of these layers has."""
    return sum(count * rank * sum(shape) for shape, count in layers)


def state_on_card(settings: OptimizerSettings, layers: Layers, rank: int) -> int:
    """Bytes that the optimizer keeps on the card for the LoRA of these layers."""
    return 0 if settings.offload_state else _state(settings, layers, rank)


def state_on_host(settings: OptimizerSettings, layers: Layers, rank: int) -> int:
    """Bytes that it keeps in the host's memory."""
    return _state(settings, layers, rank) + ON_HOST * trained_numbers(layers, rank) if settings.offload_state else 0


def _state(settings: OptimizerSettings, layers: Layers, rank: int) -> int:
    """By the table, which does not know what other classes and options keep.

    A pair of matrices [rank, in] and [out, rank] has about one row or column for each `rank` numbers.
    """
    if settings.name == "other" or settings.options:
        tried = _tried(settings, layers, rank)  # type: ignore[arg-type]  # frozen settings have a hash
        if tried is not None:
            return tried
    trained = trained_numbers(layers, rank)
    kind = KINDS[settings.name]
    each = 0.0 if settings.name == "SGD" and not settings.beta1 else kind.state_bytes
    return int(each * trained + 4 * kind.factored * trained / rank)


@lru_cache
def _tried(settings: OptimizerSettings, layers: Layers, rank: int) -> int | None:
    """Bytes that steps leave behind: on fake tensors of these shapes, or of an optimizer that asks for values on one small layer.

    None for an optimizer that is not installed or does not step, which a run's check tells of.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    with suppress(Exception), FakeTensorMode(allow_non_fake_inputs=True):  # whatever a library raises where there are no values
        kept = _kept(settings, [shape for shape, _ in layers], rank)
        return sum(size * count for size, (_, count) in zip(kept, layers, strict=True))
    with suppress(Exception), torch.random.fork_rng(devices=[]):  # whatever a library raises on what it does not like
        (size,) = _kept(settings, [(SMALL, SMALL)], rank)
        return size * trained_numbers(layers, rank) // (2 * SMALL * rank)
    return None


def _kept(settings: OptimizerSettings, shapes: Sequence[Shape], rank: int) -> list[int]:
    """Bytes of tensors that an optimizer keeps of the pair of a LoRA on each of these layers."""
    import torch

    from ..optim import make_optimizer

    pairs = [[torch.nn.Parameter(torch.ones(part)) for part in ((rank, columns), (rows, rank))] for rows, columns in shapes]
    parameters = [parameter for pair in pairs for parameter in pair]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer = make_optimizer(parameters, settings)
        for _ in range(STEPS):
            for parameter in parameters:
                parameter.grad = torch.full_like(parameter, 0.01)
            optimizer.step()
    return [sum(_bytes(optimizer.state[parameter]) for parameter in pair) for pair in pairs]


def _bytes(value: Any) -> int:
    """Of tensors, also those in lists and dicts."""
    if isinstance(value, (dict, list, tuple)):
        return sum(map(_bytes, value.values() if isinstance(value, dict) else value))
    return int(getattr(value, "nbytes", 0))
