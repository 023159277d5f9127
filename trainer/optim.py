"""The optimizer: made from its settings, its learning rate, its state where its parameters are and in a checkpoint."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from .errors import fail
from .optimizer_kinds import KINDS, LIBRARY, optimizer_arguments, optimizer_class
from .packages import require
from .rounding import in_float32, round_by_chance

if TYPE_CHECKING:
    import torch
    from torch import nn

    from .job import OptimizerSettings

RATIO = "rate_ratio"  # in a group of parameters: how many times the learning rate it has


def make_optimizer(
    parameters: list[nn.Parameter],
    settings: OptimizerSettings,
    *,
    faster: Sequence[nn.Parameter] = (),
    turns: Sequence[Sequence[nn.Parameter]] = (),
    seed: int = 0,
) -> torch.optim.Optimizer:
    """The optimizer of the settings over float32 or bfloat16 parameters; fused AdamW (Loshchilov & Hutter 2019) unless told otherwise.

    `faster` are those of them with `lora_plus_ratio` times the rate, `turns` those that are trained in turns, a list each.
    bfloat16 ones are stepped in float32 and rounded by chance, keyed by `seed`. Raises UserError for what the settings name
    and is not here.
    """
    device = "cuda" if any(parameter.device.type == "cuda" for parameter in parameters) else "cpu"
    kind = optimizer_class(settings, device)
    arguments = optimizer_arguments(settings, kind)
    apart = turns if KINDS[settings.name].package == LIBRARY else ()  # the others count the steps of each parameter
    groups = [group for own in apart or [parameters] for group in _groups(list(own), settings, faster)]
    if settings.offload_state and device == "cuda":
        return _offloaded(groups, kind, settings, arguments)
    if settings.name == "AdamW":
        arguments.setdefault("fused", device == "cuda")
    optimizer = cast("Any", kind)(groups, lr=settings.learning_rate, **arguments)
    round_by_chance(optimizer, seed)
    return optimizer


def _groups(parameters: list[nn.Parameter], settings: OptimizerSettings, faster: Sequence[nn.Parameter]) -> list[dict[str, Any]]:
    """All parameters in one group, or with LoRA+ those of the plain and those of the higher rate in one each."""
    extra = {"use_muon": True} if settings.name == "other" else {}  # the library's Muons ask for it; a LoRA is all matrices
    if settings.lora_plus_ratio == 1 or not faster:
        return [{"params": parameters, **extra}]
    fast = {id(parameter) for parameter in faster}
    slow, quick = ([parameter for parameter in parameters if (id(parameter) in fast) is wanted] for wanted in (False, True))
    ratio = settings.lora_plus_ratio
    return [{"params": slow, **extra}, {"params": quick, **extra, "lr": settings.learning_rate * ratio, RATIO: ratio}]


def _offloaded(
    groups: list[dict[str, Any]], kind: type[torch.optim.Optimizer], settings: OptimizerSettings, arguments: dict[str, Any]
) -> torch.optim.Optimizer:
    """The optimizer on the host, through torchao; small matrices too, whose rate would not follow ours after a resume otherwise."""
    require("torchao")
    offload = importlib.import_module("torchao.optim").CPUOffloadOptimizer
    return offload([{"lr": settings.learning_rate, **group} for group in groups], kind, minimal_size=0, **arguments)


def follow_parameters(optimizer: torch.optim.Optimizer) -> None:
    """Moves what the optimizer keeps of each parameter to where that lies now: those of an idle expert are on the host."""
    import torch

    if not hasattr(optimizer, "state"):  # torchao's offloading, whose state is always on the host
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            for name, value in state.items():
                if name != "step" or group.get("fused"):  # the count of steps stays on the host, except for the fused kernel
                    state[name] = _moved(value, parameter.device)
            for name, value in group.items():
                if isinstance(value, torch.Tensor) and name != "lr":
                    group[name] = value.to(parameter.device)


def _moved(value: Any, device: torch.device) -> Any:
    """Tensors, also those in lists and dicts, on another device."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {name: _moved(part, device) for name, part in value.items()}
    return type(value)([_moved(part, device) for part in value]) if type(value) in (list, tuple) else value


def learning_rate(step: int, settings: OptimizerSettings, steps: int) -> float:
    """The rate of optimizer step `step`, 1 to `steps`: linear warm-up, then constant or a half cosine towards zero.

    It depends on nothing else, so that resuming and training further cannot disturb it.
    """
    if step <= settings.warmup:
        return settings.learning_rate * step / (settings.warmup + 1)
    if settings.schedule == "constant":
        return settings.learning_rate
    progress = (step - 1 - settings.warmup) / max(steps - settings.warmup, 1)
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Sets the rate of the next step, that of each group times its ratio."""
    import torch

    for group in optimizer.param_groups:
        own = rate * group.get(RATIO, 1.0)
        if isinstance(group["lr"], torch.Tensor):  # torchao's, which refuse a number
            group["lr"].fill_(own)
        else:
            group["lr"] = own


@contextmanager
def averaged(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Inside the block the parameters are what a schedule-free optimizer is for, its average; of all others as they are.

    Samples and LoRA files are made here. Afterwards they are bit for bit as before, so that neither disturbs training, also if
    averaging or going back was cut short.
    """
    import torch

    switch = cast("Any", optimizer)
    if not (hasattr(switch, "eval") and hasattr(switch, "train")):
        yield
        return
    follow_parameters(optimizer)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    kept = [parameter.detach().clone() for parameter in parameters]
    groups = [dict(group) for group in optimizer.param_groups]  # which say whether they are averaged
    try:
        with in_float32(optimizer):
            switch.eval()
        yield
    finally:
        follow_parameters(optimizer)  # experts may have changed places meanwhile
        try:
            with in_float32(optimizer):
                switch.train()
        finally:
            for group, before in zip(optimizer.param_groups, groups, strict=True):
                group.update(before)
            with torch.no_grad():
                for parameter, number in zip(parameters, kept, strict=True):
                    parameter.copy_(number)


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What a checkpoint keeps of the optimizer: plain numbers and tensors, and whose they are."""
    return {"optimizer": optimizer.state_dict(), "optimizer_class": _whose(optimizer)}


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Takes up what `optimizer_state` gave; raises UserError if it is another class's, as after a package was removed."""
    if (whose := state.get("optimizer_class", _whose(optimizer))) != _whose(optimizer):
        cure = f"Install or remove packages so that {whose.partition('.')[0]} is used again, or train under another output.name."
        raise fail("optimizer.name", f"the checkpoint's state was made by {whose}, and here {_whose(optimizer)} is used.", cure)
    with in_float32(optimizer):
        optimizer.load_state_dict(state["optimizer"])


def _whose(optimizer: torch.optim.Optimizer) -> str:
    kind = next(kind for kind in type(optimizer).__mro__ if not kind.__module__.startswith(__package__ or "trainer"))
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
