"""Rules for optimizers: their names, betas and further arguments."""

from __future__ import annotations

from dataclasses import replace

from ..optimizer_settings import OURS
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
    values = [as_number(value) for value in (entry.value if isinstance(entry.value, list) else str(entry.value).strip("()[]").split(","))]
    if len(values) in (2, 3):
        report.wait(entry, "betas", values)
    else:
        report.unsupported(entry, "an optimizer has two betas, or three")


def option(name: str) -> Rule:
    """Hands the value on as the optimizer's argument `name`, if the class that is used takes it."""
    return lambda report, entry: report.wait(entry, name, entry.value)


def any_option(report: Report, entry: Entry) -> None:
    """The rule for an argument of the optimizer that has no setting of its own."""
    name = entry.key.rpartition(".")[2]
    if name.isidentifier() and name not in OURS:
        report.wait(entry, name, entry.value)
    else:
        report.unsupported(entry, "it is no argument of an optimizer")


def any_option_in_use(report: Report, entry: Entry) -> None:
    """The same where the arguments of all optimizers are in the file, those that are not used switched off."""
    if is_off(entry.value):
        report.wait(entry, entry.key.rpartition(".")[2], entry.value, off=True)
    else:
        any_option(report, entry)


def _put(report: Report, entry: Entry, name: str) -> None:
    report.put("optimizer.name", name)
    report.mapped(entry, "optimizer.name", name)


def _put_class(report: Report, entry: Entry, name: str) -> None:
    report.put("optimizer.name", "other")
    report.put("optimizer.other", name)
    report.mapped(entry, "optimizer.other", name, "the class of this name in pytorch_optimizer")
