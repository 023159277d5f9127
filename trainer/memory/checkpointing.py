"""What a block keeps for its backward pass, and what it computes again: on the whole model's memory the largest choice."""

from __future__ import annotations

import inspect
from collections.abc import Callable
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
RECOMPILES = 64  # of one block's code: each new kind of shape is one or two


def checkpointed(kind: type[nn.Module], way: Checkpointing, keeps_random: bool, compile: bool, host: HostActivations) -> Forward:
    """The forward pass of a class of blocks, to be called with the block first: what it keeps is decided here.

    off keeps all that autograd asks for; selective the inputs and what attention gave; full the inputs only; offloaded
    keeps those on the host. `keeps_random`: the block draws random numbers, which recomputation must draw again.
    """
    forward: Forward = _code_of_its_own(kind.forward)
    if way in ("selective", "full"):
        forward = _recomputed(forward, way == "selective", keeps_random)
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


def _recomputed(forward: Forward, selective: bool, keeps_random: bool) -> Forward:
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": keeps_random}
    if selective:
        options["context_fn"] = partial(create_selective_checkpoint_contexts, _keep_attention)

    def run(block: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, block, *args, **options, **kwargs)

    return _code_of_its_own(run)


def _keep_attention(_: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    kept = isinstance(operator, torch._ops.OpOverload) and operator.name().partition(".")[0] in ATTENTION
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


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
