"""The optimizers that can be chosen: which class of which library each is, what it is given, what it takes and its usual rate."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from .errors import fail, nearest
from .optimizer_settings import OURS, option_values
from .packages import broken, install_command, require

if TYPE_CHECKING:
    import torch

    from .job import OptimizerSettings

LIBRARY = "pytorch_optimizer"
AVERAGING = "schedulefree"  # how its classes begin that average the weights
Arguments = Callable[["OptimizerSettings"], dict[str, Any]]


@dataclass(frozen=True)
class Kind:
    """One optimizer: its class in a library, the arguments that it gets from the settings, its needs."""

    package: str  # "" takes the first that works, as `_eight_bit` says
    class_name: str
    rates: tuple[float, float]  # its usual learning rates, from and to
    state_bytes: float  # what it keeps for each trained number
    arguments: Arguments
    factored: int = 0  # of how many numbers more it keeps the means of each matrix's rows and columns alone, in float32
    averages: bool = False  # samples are drawn with averages of the weights, while these are kept beside them


def _adam(settings: OptimizerSettings) -> dict[str, Any]:
    return {"betas": (settings.beta1, settings.beta2), "weight_decay": settings.weight_decay}


def _decay(settings: OptimizerSettings) -> dict[str, Any]:
    return {"weight_decay": settings.weight_decay}


def _adafactor(settings: OptimizerSettings) -> dict[str, Any]:
    """The second eps is the smallest size a matrix is taken for; at 1 the rate does not shrink with the LoRA's zero start."""
    return {"eps": (None, 1.0), **_decay(settings)}


def _prodigy(settings: OptimizerSettings) -> dict[str, Any]:
    """With what its authors advise for diffusion models and for a warm-up (Mishchenko & Defazio 2023, README)."""
    return {**_adam(settings), "bias_correction": True, "safeguard_warmup": settings.warmup > 0}


def _came(settings: OptimizerSettings) -> dict[str, Any]:
    return {"betas": (settings.beta1, settings.beta2, 0.9999), **_decay(settings)}


def _muon(settings: OptimizerSettings) -> dict[str, Any]:
    """Updates as large as AdamW's (Liu et al. 2025), so that its rates hold."""
    return {"momentum": settings.beta1, "adjust_lr_fn": "match_rms_adamw", **_decay(settings)}


def _momentum(settings: OptimizerSettings) -> dict[str, Any]:
    return {"momentum": settings.beta1, **_decay(settings)}


KINDS: dict[str, Kind] = {
    "AdamW": Kind("torch.optim", "AdamW", (5e-6, 2e-3), 8, _adam),
    "AdamW 8-bit": Kind("", "AdamW8bit", (5e-6, 2e-3), 2.1, _adam),
    "Adafactor": Kind("torch.optim", "Adafactor", (5e-6, 2e-3), 0, _adafactor, factored=1),
    "Lion": Kind(LIBRARY, "Lion", (2e-6, 1e-4), 4, _adam),
    "Prodigy": Kind(LIBRARY, "Prodigy", (0.3, 1.0), 16, _prodigy),
    "Schedule-free AdamW": Kind(LIBRARY, "ScheduleFreeAdamW", (3e-4, 1e-2), 8, _adam, averages=True),
    "CAME": Kind(LIBRARY, "CAME", (5e-6, 1e-3), 4, _came, factored=2),
    "Muon": Kind("torch.optim", "Muon", (5e-6, 2e-3), 4, _muon),
    "StableAdamW": Kind(LIBRARY, "StableAdamW", (5e-6, 2e-3), 8, _adam),
    "SGD": Kind("torch.optim", "SGD", (1e-3, 1.0), 4, _momentum),
    "other": Kind(LIBRARY, "", (0.0, 1.0), 8, _decay),  # state of one that cannot be tried
}


def own_name(settings: OptimizerSettings) -> str:
    """The name in the table of the class that is used, also where it is named as other; torch's of like names are other programs."""
    wanted = settings.other.strip().lower() if settings.name == "other" else ""
    same = (name for name, kind in KINDS.items() if kind.package == LIBRARY and kind.class_name.lower() == wanted != "")
    return next(same, settings.name)


def averages(settings: OptimizerSettings) -> bool:
    """Whether samples are drawn with averages of the weights, while these are kept beside them."""
    return KINDS[own_name(settings)].averages or settings.other.strip().lower().startswith(AVERAGING)


def usual_rate(settings: OptimizerSettings) -> str:
    """What to know of a learning rate that is unusual for the optimizer, or ""."""
    name = own_name(settings)
    low, high = KINDS[name].rates
    if low <= settings.learning_rate <= high:
        return ""
    return f"{name} is usually trained at a learning rate from {low:g} to {high:g}; this is {settings.learning_rate:g}."


def optimizer_class(settings: OptimizerSettings, device: str) -> type[torch.optim.Optimizer]:
    """The class that the settings name, on "cpu" or "cuda"; raises UserError for a package that is missing and for unknown names."""
    kind = KINDS[settings.name]
    if not kind.package:
        return _eight_bit(device)
    if kind.package == LIBRARY:
        require(LIBRARY)
    module = importlib.import_module(kind.package)
    if kind.class_name:
        if not hasattr(module, kind.class_name):
            raise fail("optimizer.name", f"this PyTorch has no {kind.class_name}.", "Update PyTorch, or choose another optimizer.")
        found = cast("type[torch.optim.Optimizer]", getattr(module, kind.class_name))
        return _in_turns(found) if kind.package == LIBRARY else found
    known = _library_classes()
    if settings.other.strip().lower() not in known:
        hint = nearest(settings.other.strip(), [found.__name__ for found in known.values()])
        raise fail("optimizer.other", f"{LIBRARY} has no optimizer '{settings.other}'.", hint)
    return _in_turns(known[settings.other.strip().lower()])


def _library_classes() -> dict[str, type[torch.optim.Optimizer]]:
    """The library's own optimizers by their names in small letters."""
    import torch

    module = importlib.import_module(LIBRARY)
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)]
    return {kind.__name__.lower(): kind for kind in kinds if kind.__module__.startswith(LIBRARY)}


@lru_cache
def _eight_bit(device: str) -> type[torch.optim.Optimizer]:
    """The 8-bit AdamW of bitsandbytes if it works on this device, else torchao's; raises UserError if neither is there."""
    reasons = []
    for module in ("bitsandbytes", "torchao"):
        if find_spec(module) is None:
            continue
        try:
            if reason := broken(module):
                raise ImportError(reason)
            found = cast("type[torch.optim.Optimizer]", importlib.import_module(f"{module}.optim").AdamW8bit)
            found = found if module == "bitsandbytes" else _compiled_if_possible(found, device)
            _step_once(found, device)
            return found
        except Exception as error:  # a library that does not fit the card may raise anything
            reasons.append(f"{module} does not work here ({type(error).__name__}: {error})")
    found = "; ".join(reasons) or "needs bitsandbytes or torchao, and neither is installed"
    raise fail("optimizer.name", f"AdamW 8-bit: {found}.", f"Run: {install_command('bitsandbytes')}")


def _step_once(kind: type[torch.optim.Optimizer], device: str) -> None:
    import torch

    parameter = torch.nn.Parameter(torch.zeros(64, 64, device=device))  # as many as 8-bit state begins at
    parameter.grad = torch.ones_like(parameter)
    cast("Any", kind)([parameter]).step()
    if not float(parameter.detach().sum()) < 0:
        raise ValueError("its step changes nothing")


def _compiled_if_possible(kind: type[torch.optim.Optimizer], device: str) -> type[torch.optim.Optimizer]:
    """A class whose step compiles itself, as torchao's do; without Triton, and on a CPU, where it takes minutes, it is kept from that."""
    import torch

    if device == "cuda" and find_spec("triton") is not None:
        return kind
    base: Any = kind

    class Uncompiled(base):
        """The same with its step as it is written."""

        def step(self, closure: Any = None) -> Any:
            with torch.compiler.set_stance("force_eager"):
                return super().step(closure)

    return Uncompiled


def _in_turns(kind: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """The class with a step that sees only groups and parameters with gradients: of experts in turns, the one whose turn it is.

    The library counts steps and averages by group, and takes the first parameter's device for that of all.
    """
    base: Any = kind

    class InTurns(base):
        """The same, blind for what has no gradient."""

        def step(self, closure: Any = None) -> Any:
            groups = list(self.param_groups)
            parameters = [group["params"] for group in groups]
            for group in groups:
                group["params"] = [parameter for parameter in group["params"] if parameter.grad is not None]
            self.param_groups[:] = [group for group in groups if group["params"]]  # in place: wrappers show that of another
            try:
                return super().step(closure) if self.param_groups else None
            finally:
                self.param_groups[:] = groups
                for group, own in zip(groups, parameters, strict=True):
                    group["params"] = own

    return InTurns


def option_parameters(kind: type[torch.optim.Optimizer]) -> dict[str, inspect.Parameter]:
    """What options may set of a class, by name."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    taken = inspect.signature(kind.__init__).parameters.items()
    return {name: each for name, each in taken if each.kind in named and name not in ("self", *OURS)}


def optimizer_arguments(settings: OptimizerSettings, kind: type[torch.optim.Optimizer]) -> dict[str, Any]:
    """What the class is called with beside the parameters and the rate; raises UserError for options that it does not have."""
    known = option_parameters(kind)
    options = option_values(settings.options)
    if unknown := [name for name in options if name not in known]:
        raise fail("optimizer.options", f"{settings.other or settings.name} has no {', '.join(unknown)}.", nearest(unknown[0], list(known)))
    given = KINDS[settings.name].arguments(settings)
    return {**{name: value for name, value in given.items() if name in known}, **options}
