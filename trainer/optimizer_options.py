"""Which options each optimizer takes and what they are if nothing sets them, known without loading the library that has it."""

from __future__ import annotations

from typing import Any

from .errors import fail
from .optimizer_kinds import KINDS, LIBRARY, optimizer_class, option_parameters
from .optimizer_settings import OptimizerSettings

_ADAM: dict[str, Any] = {"betas": (0.9, 0.999), "eps": 1e-8}
_DECAY: dict[str, Any] = {"weight_decouple": True, "fixed_decay": False}

# How steps are computed, as foreach and fused say, is left out; so is Muon's adjust_lr_fn, which makes AdamW's rates hold. Of the
# 8-bit classes of two libraries it is what both take.
OPTIONS: dict[str, dict[str, Any]] = {
    "AdamW": {**_ADAM, "amsgrad": False},
    "AdamW 8-bit": _ADAM,
    "Adafactor": {"beta2_decay": -0.8, "eps": (None, 1e-3), "d": 1.0},
    "Lion": {"betas": (0.9, 0.99), **_DECAY},
    "Prodigy": {
        **_ADAM, **_DECAY, "beta3": None, "d0": 1e-6, "d_coef": 1.0, "growth_rate": float("inf"), "bias_correction": False,
        "safeguard_warmup": False,
    },
    "Schedule-free AdamW": {**_ADAM, "r": 0.0, "weight_lr_power": 2.0, "warmup_steps": 0, "decoupling_c": 0.0, "ams_bound": False},
    "CAME": {"betas": (0.9, 0.999, 0.9999), **_DECAY, "clip_threshold": 1.0, "ams_bound": False, "eps1": 1e-30, "eps2": 1e-16},
    "Muon": {"momentum": 0.95, "nesterov": True, "ns_coefficients": (3.4445, -4.775, 2.0315), "eps": 1e-7, "ns_steps": 5},
    "StableAdamW": {"betas": (0.9, 0.99), "eps": 1e-8, "kahan_sum": True, "weight_decouple": True},
    "SGD": {"momentum": 0.0, "dampening": 0.0, "nesterov": False},
}  # fmt: skip


def option_defaults(settings: OptimizerSettings) -> dict[str, Any]:
    """The options of the optimizer that the settings name, each with its value where nothing sets it.

    Of a class that is named as other they are read from its library; raises UserError if that is missing or broken, and for
    a class that it does not have or that takes more than parameters, a rate and options.
    """
    if settings.name != "other":
        known = OPTIONS[settings.name]
        return known | {name: value for name, value in KINDS[settings.name].arguments(settings).items() if name in known}
    options = option_parameters(optimizer_class(settings, "cpu"))
    if needed := [name for name, each in options.items() if each.default is each.empty]:
        raise fail("optimizer.other", f"{LIBRARY}'s {settings.other} needs {', '.join(needed)}.", "Choose another optimizer.")
    return {name: each.default for name, each in options.items()}
