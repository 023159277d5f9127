"""musubi-tuner's training settings that hold together: noise levels, checkpointing, two experts, steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from .model_rules import noise_levels, one_expert, part
from .result import Entry, Report
from .rules import as_number, is_off, only, plain, to
from .sizes import whole

_METHODS = {"sigma": "uniform", "uniform": "uniform", "sigmoid": "logit-normal", "shift": "logit-normal"}
_BY_SIZE = "objective.shift is one value for all sizes"
_LOGIT_NORMAL = "logitnormal"
_BOUNDARY = only([875, 900, 0.875, 0.9], "it is the model's own here too", "each expert is trained on the noise levels of its release")


def add_together(report: Report, given: Mapping[str, Entry]) -> None:
    """The lines of settings that say what others mean, by their names; the model's family is known."""
    for names, rule in _GROUPS.items():
        rule(report, *map(given.get, names))


def _bounds(report: Report, least: Entry | None, most: Entry | None) -> None:
    """The noise levels of each expert."""
    for entry, expert, end in ((least, "high", 0), (most, "low", 1)):
        if entry:
            noise_levels(expert, end)(report, replace(entry, value=_thousandth(entry)))


def _thousandth(entry: Entry) -> object:
    number = as_number(entry.value)
    return number / 1000 if isinstance(number, (int, float)) else entry.value


def _experts(report: Report, low: Entry | None, high: Entry | None, boundary: Entry | None) -> None:
    """The diffusion model's file; where another is given for high noise, it is that for low noise."""
    if low and high and high.value:
        part("transformer")(report, high)
        part("transformer", "transformer_low")(report, low)
    elif low:
        one_expert(report, low)
    if boundary:
        _BOUNDARY(report, boundary)


def _noise_levels(
    report: Report, sampling: Entry | None, scheme: Entry | None, shift: Entry | None, scale: Entry | None, mean: Entry | None,
    std: Entry | None,
) -> None:  # fmt: skip
    """How noise levels are drawn: the method says which of the other settings count."""
    method, weighting = plain(sampling.value) if sampling else "sigma", plain(scheme.value) if scheme else "none"
    by_scheme = method == "sigma" and weighting == _LOGIT_NORMAL
    timesteps = "logit-normal" if by_scheme else _METHODS.get(method)
    if sampling and timesteps:
        unshifted = method in ("uniform", "sigmoid")
        if unshifted:
            report.put("objective.shift", 1.0)
        report.put("objective.timesteps", timesteps)
        report.mapped(sampling, "objective.timesteps", timesteps, "noise levels are not shifted: objective.shift is 1" if unshifted else "")
    elif sampling:
        report.unsupported(sampling, _BY_SIZE if method.endswith("shift") else "objective.timesteps knows only: logit-normal, uniform")
    if scheme and by_scheme:
        report.put("objective.timesteps", timesteps)
        report.mapped(scheme, "objective.timesteps", timesteps)
    elif scheme and weighting in ("none", _LOGIT_NORMAL):
        report.ignored(scheme, "all noise levels weigh alike" if weighting == "none" else "there it takes timestep_sampling sigma")
    elif scheme:
        report.unsupported(scheme, "noise levels are weighed by objective.snr_gamma alone")
    _where(report, shift, "objective.shift", method in ("sigma", "shift"), "timestep_sampling sigma or shift")
    _where(report, scale, "objective.logit_std", method in ("sigmoid", "shift"), "timestep_sampling sigmoid or shift")
    _where(report, mean, "objective.logit_mean", by_scheme, "weighting_scheme logit_normal")
    _where(report, std, "objective.logit_std", by_scheme, "weighting_scheme logit_normal")


def _where(report: Report, entry: Entry | None, target: str, counts: bool, condition: str) -> None:
    """Takes a value over where it counts."""
    if entry and counts:
        to(target)(report, entry)
    elif entry:
        report.ignored(entry, f"there it takes {condition}")


def _checkpointing(report: Report, switch: Entry | None, offloading: Entry | None) -> None:
    """The one setting of the job that the switch and its offloading make."""
    on, offloaded = (entry is not None and not is_off(entry.value) for entry in (switch, offloading))
    if switch:
        value = "off" if not on else "offloaded" if offloaded else "full"
        report.put("memory.gradient_checkpointing", value)
        report.mapped(switch, "memory.gradient_checkpointing", value)
    if offloading and on and offloaded:
        report.mapped(offloading, "memory.gradient_checkpointing", "offloaded")
    elif offloading:
        report.ignored(offloading, "there it takes gradient_checkpointing" if offloaded else "it is off")


def _steps(report: Report, steps: Entry | None, warmup: Entry | None, epochs: Entry | None) -> None:
    """Steps, which epochs overrule, and a warm-up that may be a share of them."""
    if steps and epochs:
        report.unsupported(steps, "max_train_epochs overrules it; set schedule.steps")
    elif steps:
        to("schedule.steps")(report, steps)
    if warmup is None:
        return
    text = str(warmup.value)
    share = as_number(text.removesuffix("%"))
    share = share / 100 if text.endswith("%") and isinstance(share, (int, float)) else share
    count = whole(report.value("schedule.steps"))
    if not isinstance(share, float) or not 0 <= share < 1:
        to("optimizer.warmup")(report, warmup)
    elif count:
        report.put("optimizer.warmup", int(share * count))
        report.mapped(warmup, "optimizer.warmup", int(share * count), f"{share:g} of {count} steps")
    else:
        report.unsupported(warmup, "a share of steps that are not known; set optimizer.warmup to a number of steps")


_GROUPS: dict[tuple[str, ...], Callable[..., None]] = {  # settings that hold together, and the rule that takes them in this order
    ("min_timestep", "max_timestep"): _bounds,
    ("dit", "dit_high_noise", "timestep_boundary"): _experts,
    ("timestep_sampling", "weighting_scheme", "discrete_flow_shift", "sigmoid_scale", "logit_mean", "logit_std"): _noise_levels,
    ("gradient_checkpointing", "gradient_checkpointing_cpu_offload"): _checkpointing,
    ("max_train_steps", "lr_warmup_steps", "max_train_epochs"): _steps,  # the last one's own line is in the table
}
TOGETHER = frozenset(name for names in _GROUPS for name in names)  # the settings that are known here
