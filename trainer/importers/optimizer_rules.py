"""Rules for optimizers: their names, betas and further arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .result import Entry, Report
from .rules import Rule, as_number, is_off, plain, to

_NAMES = {
    "adamw": "AdamW",
    "adamwoptimi": "AdamW",
    "adamwbnb": "AdamW",
    "adamw8bit": "AdamW 8-bit",
    "adamwbnb8bit": "AdamW 8-bit",
    "adamw8bitkahan": "AdamW 8-bit",
    "adafactor": "Adafactor",
    "lion": "Lion",
    "prodigy": "Prodigy",
    "schedulefreeadamw": "Schedule-free AdamW",
    "adamwschedulefree": "Schedule-free AdamW",
    "came": "CAME",
    "muon": "Muon",
    "stableadamw": "StableAdamW",
    "sgd": "SGD",
}
_CLASSES = {  # of pytorch_optimizer, where the name there is spelt otherwise but for case
    name.lower(): name
    for name in (
        "ADOPT", "AdaBelief", "AdEMAMix", "Adan", "AdamP", "Aida", "DAdaptAdam", "DAdaptAdaGrad", "DAdaptAdan", "DAdaptLion",
        "DAdaptSGD", "LARS", "Lamb", "Ranger", "RAdam", "ScheduleFreeSGD", "SignSGD", "SOAP", "Tiger", "Yogi",
    )
}  # fmt: skip


def optimizer(report: Report, entry: Entry) -> None:
    """The rule for an optimizer's name."""
    name = plain(entry.value)
    ours, known = _NAMES.get(name), report.value("optimizer.name")
    if ours == "AdamW" and known == "AdamW 8-bit":  # which another setting said
        report.mapped(entry, "optimizer.name", known)
    elif ours:
        _put(report, entry, ours)
    elif name in _CLASSES:
        _put_class(report, entry, _CLASSES[name])
    else:
        report.unsupported(entry, "AdamW is used instead; check the learning rate")


def library_optimizer(report: Report, entry: Entry) -> None:
    """The rule where any other name is a class of pytorch_optimizer."""
    if plain(entry.value) == "offload":
        to("optimizer.offload_state")(report, replace(entry, value=True))
    elif (
        plain(entry.value) in (*_NAMES, *_CLASSES, "automagic", "genericoptim", "adamw8bitautomagic") or not str(entry.value).isidentifier()
    ):
        optimizer(report, entry)
    else:
        _put_class(report, entry, str(entry.value))


def eight_bit(report: Report, entry: Entry) -> None:
    """The rule for a switch that makes AdamW 8-bit."""
    if is_off(entry.value):
        report.ignored(entry, "it is off")
    elif report.value("optimizer.name") in (None, "AdamW", "AdamW 8-bit"):
        _put(report, entry, "AdamW 8-bit")
    else:
        report.unsupported(entry, "only AdamW has 8-bit state")


def betas(report: Report, entry: Entry) -> None:
    """The rule for all betas in one setting, a list or text with a comma."""
    values = [as_number(value) for value in (entry.value if isinstance(entry.value, list) else str(entry.value).split(","))]
    if len(values) == 3 and all(isinstance(value, (int, float)) for value in values):
        _add_option(report, entry, "betas", f"({', '.join(map(str, values))})")
        return
    if len(values) != 2:
        report.unsupported(entry, "an optimizer has two betas, or three")
        return
    report.put("optimizer.beta1", values[0])
    report.put("optimizer.beta2", values[1])
    report.mapped(entry, "optimizer.beta1, optimizer.beta2", values)


def option(name: str, usual: Any) -> Rule:
    """Hands the value on as the optimizer's argument `name`, unless it is what is used here anyway."""

    def rule(report: Report, entry: Entry) -> None:
        if plain(entry.value) == plain(usual):
            report.ignored(entry, "the same here")
        elif isinstance(entry.value, (list, dict)):
            report.unsupported(entry, "only numbers, words and switches are handed on; write it into optimizer.options")
        else:
            _add_option(report, entry, name, str(as_number(entry.value)))

    return rule


def any_option(report: Report, entry: Entry) -> None:
    """The rule for an argument of the optimizer that has no setting of its own."""
    name = entry.key.rpartition(".")[2]
    if report.value("optimizer.name") in (None, "AdamW", "AdamW 8-bit") and name != "amsgrad":
        report.unsupported(entry, "AdamW is used without it")
    elif name.isidentifier():
        option(name, object())(report, entry)
    else:
        report.unsupported(entry, "it is no argument of an optimizer")


def _put(report: Report, entry: Entry, name: str) -> None:
    report.put("optimizer.name", name)
    report.mapped(entry, "optimizer.name", name)


def _put_class(report: Report, entry: Entry, name: str) -> None:
    report.put("optimizer.name", "other")
    report.put("optimizer.other", name)
    report.mapped(entry, "optimizer.other", name, "the class of this name in pytorch_optimizer")


def _add_option(report: Report, entry: Entry, name: str, value: str) -> None:
    text = f"{name}={value}"
    report.put("optimizer.options", f"{report.value('optimizer.options') or ''} {text}".strip())
    report.mapped(entry, "optimizer.options", text)
