"""Arguments of other trainers' optimizers as options of the class that is used here: what it does not take is dropped and told."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ..errors import UserError
from ..optimizer_options import option_defaults
from ..optimizer_settings import OptimizerSettings, option_values
from .result import Option, Report
from .rules import as_number, is_off

_SPELT = {  # names of other packages for what is meant by ours
    "decouple": "weight_decouple",
    "decoupled_decay": "weight_decouple",
    "use_bias_correction": "bias_correction",
    "eps": "eps1",
    "clip_threshold": "d",
    "decay_rate": "beta2_decay",
}
_SPEED = ("foreach", "fused", "capturable", "use_triton", "triton", "fsdp_in_use", "log_every")
_ABSENT = ("relative_step", "scale_parameter", "warmup_init")  # of Adafactor elsewhere; off they mean what is done here
_BETAS = ("beta1", "beta2", "beta3")
_RANGES = {**dict.fromkeys(("betas", "beta", "beta3", "momentum"), (0.0, 1.0)), "d": (1.0, math.inf)}  # the upper end is none of it
_Known = dict[str, Any]


def settle_options(report: Report) -> None:
    """Gives every argument of the optimizer that waits its line, and the job those that its optimizer takes."""
    waiting, report.waiting = report.waiting, []
    if not waiting and report.value("optimizer.name") != "other":
        return
    known, title, missing = _options(report)
    if missing:
        for option in waiting:
            report.unsupported(option.entry, missing)
        return
    single = {option.name: option for option in waiting if option.name in _BETAS and option.name not in known}
    if single:
        _single_betas(report, known, title, single)
    for option in waiting:
        answered = single.get(option.name) is option or (option.name == "betas" and _listed_betas(report, known, title, option))
        if not answered:
            _settle(report, known, title, option)


def _options(report: Report) -> tuple[_Known, str, str]:
    """The options of the job's optimizer, its name, and why they are not known; a class that is not there gives way to AdamW."""
    given = report.job.get("optimizer", {})
    warmup = given.get("warmup")
    settings = OptimizerSettings.model_construct(
        name=given.get("name", "AdamW"), other=given.get("other", ""), warmup=warmup if isinstance(warmup, int) else 0
    )
    title = settings.other if settings.name == "other" else settings.name
    try:
        return option_defaults(settings), title, ""
    except UserError as error:
        (problem,) = error.problems
    if problem.where == "optimizer.other":
        report.withdraw("optimizer.other", f"{problem.found.rstrip('.')}; AdamW is used instead; check the learning rate")
        report.put("optimizer.name", "AdamW")
        report.put("optimizer.other", "")
        return _options(report)
    return {}, title, f"{problem.where} {problem.found.rstrip('.')}, so that it is not known what {title} takes; {problem.cure}"


def _settle(report: Report, known: _Known, title: str, option: Option) -> None:
    """The line of one argument."""
    name = option.name if option.name in known else _SPELT.get(option.name, option.name)
    value = _value(option.value)
    if name not in known:
        _absent(report, title, option)
    elif value is ...:
        report.unsupported(option.entry, "only numbers, words, switches and lists of them are handed on")
    elif name == "eps1" and "eps2" in known and _fits(value, (1.0, 1.0)):
        _add(report, option, {"eps1": value[0], "eps2": value[1]})
    elif not _in_range(name, value, known[name]):
        report.unsupported(option.entry, f"{title} does not take {name} at {_written(value)}")
    elif not _fits(value, known[name]):
        report.unsupported(option.entry, f"{title} takes another kind of value for {name}, such as {_written(known[name])}")
    elif value == known[name]:
        report.ignored(option.entry, "the same here")
    else:
        _add(report, option, {name: value})


def _absent(report: Report, title: str, option: Option) -> None:
    """The line of an argument that the class does not have."""
    if option.name in _SPEED:
        report.ignored(option.entry, "how steps are computed is chosen here")
    elif is_off(option.value) and (option.off or (title == "Adafactor" and option.name in _ABSENT)):
        report.ignored(option.entry, "it is off")
    else:
        report.unsupported(option.entry, f"{title} has no {option.name}, and is used without it")


def _add(report: Report, option: Option, given: dict[str, Any]) -> None:
    """Adds options to the job's, unless it has one of them."""
    before = report.value("optimizer.options") or ""
    if again := [name for name in given if name in option_values(before)]:
        report.unsupported(option.entry, f"{' and '.join(again)} is given by another setting: optimizer.options is {before}")
        return
    text = " ".join(f"{name}={_written(value)}" for name, value in given.items())
    report.put("optimizer.options", f"{before} {text}".strip())
    report.mapped(option.entry, "optimizer.options", text)


def _listed_betas(report: Report, known: _Known, title: str, option: Option) -> bool:
    """Betas in one setting as settings of the job, where it has them; False if they are an option."""
    values, usual = _value(option.value), known.get("betas")
    listed = isinstance(values, tuple) and len(values) > 1
    if not listed or report.value("optimizer.name") == "other" or usual is None or (len(values) == len(usual) == 3):
        return False
    for name, value in zip(_BETAS[:2], values, strict=False):
        report.put(f"optimizer.{name}", value)
    report.mapped(option.entry, "optimizer.beta1, optimizer.beta2", list(values[:2]), f"{title} has two betas" if len(values) > 2 else "")
    return True


def _single_betas(report: Report, known: _Known, title: str, given: dict[str, Option]) -> None:
    """Betas in settings of their own: settings of the job, or of a class with more or of another name its option betas."""
    usual = known.get("betas") or ()
    if report.value("optimizer.name") != "other" and not ("beta3" in given and len(usual) == 3):
        for name, option in given.items():
            if name == "beta3":
                _absent(report, title, option)
            else:
                value = as_number(option.value)
                report.put(f"optimizer.{name}", value)
                report.mapped(option.entry, f"optimizer.{name}", value)
        return
    joined = [name for name in _BETAS[: len(usual)] if name in given]
    for name, option in given.items():
        if name not in joined:
            _settle(report, known, title, replace(option, name="beta" if name == "beta1" else name))
    if joined:
        first, *others = (given[name] for name in joined)
        values = tuple(given[name].value if name in given else other for name, other in zip(_BETAS, usual, strict=False))
        _settle(report, known, title, replace(first, name="betas", value=values))
        for option in others:
            report.same(option.entry, first.entry)


def _value(raw: Any) -> Any:
    """What stands there as a number, word, switch, None or tuple; ... if it is none of them."""
    if raw is None or isinstance(raw, (bool, int, float)):
        return raw
    if isinstance(raw, (list, tuple)):
        text = f"({', '.join(map(str, raw))})"
    else:
        text = str(raw).strip()
        text = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
        text = f"({text})" if "," in text and text[0] not in "([" else text
    try:
        found = option_values(f"value={text}")
    except ValueError:
        return ...
    return found["value"] if list(found) == ["value"] else ...


def _fits(value: Any, usual: Any) -> bool:
    """Whether a value is of the kind of the usual one."""
    if isinstance(usual, tuple):
        return isinstance(value, tuple) and len(value) == len(usual) and all(map(_fits, value, usual))
    if usual is None:
        return not isinstance(value, (tuple, str))
    if isinstance(usual, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(usual, bool)
    if isinstance(usual, (int, float)):
        return isinstance(value, int if isinstance(usual, int) else (int, float)) and value == value
    return isinstance(value, type(usual))


def _in_range(name: str, value: Any, usual: Any) -> bool:
    """Whether the numbers in a value are in the option's range and finite, or the usual one, which may be infinite."""
    numbers = [each for each in (value if isinstance(value, tuple) else (value,)) if isinstance(each, (int, float))]
    low, high = _RANGES.get(name, (-math.inf, math.inf))
    return all((low <= number < high and math.isfinite(number)) or number == usual for number in numbers)


def _written(value: Any) -> str:
    """A value as optimizer.options has it."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_written, value))})"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(as_number(value))
