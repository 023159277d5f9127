"""What a block keeps for its backward pass, and what it computes again: on the whole model's memory the largest choice."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType
from typing import Any, cast

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from .activations import HostActivations
from .choices import Checkpointing

Forward = Callable[..., Any]
ATTENTION = (  # operators whose results a selective checkpoint keeps, where this PyTorch and the installed packages have them
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_fused_attention_overrideable",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "flash_attn::_flash_attn_forward",
    "flash_attn::_flash_attn_varlen_forward",
    "flash_attn_3::fwd",
)
PRODUCTS = ("aten::mm", "aten::addmm", "aten::_scaled_mm")  # whose results are kept beside those where the checkpoint is light
LEAST_WORK = 1 / 8  # of a kept product's result, numbers that each of it sums up: the second product of a LoRA is less
RECOMPILES = 64  # of one block's code: each new kind of shape is one or two


def checkpointed(kind: type[nn.Module], way: Checkpointing, keeps_random: bool, compile: bool, host: HostActivations) -> Forward:
    """The forward pass of a class of blocks, to be called with the block first: what it keeps is decided here.

    off keeps all that autograd asks for; light the inputs and what attention and matrix products gave; selective the inputs
    and what attention gave; full the inputs only; offloaded keeps those on the host. `keeps_random`: the block draws random
    numbers, which recomputation must draw again.
    """
    forward: Forward = _code_of_its_own(kind.forward)
    if way in ("light", "selective", "full"):
        forward = _recomputed(forward, way, keeps_random, compile)
    if compile:
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, RECOMPILES)
        forward = cast("Forward", torch.compile(forward))
    return _offloaded(forward, kind, keeps_random, host) if way == "offloaded" else forward


def _code_of_its_own(forward: Forward) -> Forward:
    """A copy, so that what is compiled for it is counted for this class alone and goes when the copy goes."""
    if not isinstance(forward, FunctionType) or hasattr(forward, "__wrapped__"):
        return forward
    copy = FunctionType(forward.__code__.replace(), forward.__globals__, forward.__name__, forward.__defaults__, forward.__closure__)
    copy.__kwdefaults__ = forward.__kwdefaults__
    return copy


def _recomputed(forward: Forward, way: Checkpointing, keeps_random: bool, compile: bool) -> Forward:
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": keeps_random}
    if way != "full" or compile:  # without a policy PyTorch 2.11 compiles what fp8 products give into what is kept
        options["context_fn"] = partial(create_selective_checkpoint_contexts, partial(kept_or_computed, way))

    def run(block: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, block, *args, **options, **kwargs)

    return _code_of_its_own(run)


def kept_or_computed(way: Checkpointing, _: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    """What becomes of an operator's result in a selective checkpoint: it is kept, or computed again."""
    name = operator.name().partition(".")[0] if isinstance(operator, torch._ops.OpOverload) else ""
    kept = (way != "full" and name in ATTENTION) or (way == "light" and name in PRODUCTS and worth_keeping(operator, args))
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def worth_keeping(operator: Any, args: Sequence[Any]) -> bool:
    """Whether a product's result costs more to compute again than it takes to keep."""
    inner, columns = (args[2] if operator.name().startswith("aten::addmm") else args[1]).shape
    return bool(inner >= LEAST_WORK * columns)


def _offloaded(forward: Forward, kind: type[nn.Module], keeps_random: bool, host: HostActivations) -> Forward:
    signature = inspect.signature(kind.forward)

    def run(block: nn.Module, *args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(block, *args, **kwargs)
        bound.apply_defaults()
        if not torch.is_grad_enabled():
            return forward(*bound.args, **bound.kwargs)
        values, names = [*bound.args, *bound.kwargs.values()], list(bound.kwargs)
        given = [value for value in values if isinstance(value, torch.Tensor) and value.requires_grad]
        # the first block's inputs need no gradient: without one that does, the results would not either
        anchor = torch.zeros((), requires_grad=True)

        def again(_: Any, *values: Any) -> Any:
            count = len(values) - len(names)
            return forward(*values[:count], **dict(zip(names, values[count:], strict=True)))

        with host.keeping(given):
            return checkpoint(again, anchor, *values, use_reentrant=True, preserve_rng_state=keeps_random)

    return run
