"""Rules: what becomes of each setting of a trainer. A format is a table of them, by the setting's name there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from ..errors import fail
from .documents import Document, read
from .result import DEFAULTS, Entry, Report

Rule = Callable[[Report, Entry], None]
ATTENTION = {"to_q", "to_k", "to_v", "to_out.0"}
FEED_FORWARD = {"ff.net.0.proj", "ff.net.2"}
_SWITCH = {"true": True, "1": True, "on": True, "yes": True, "false": False, "0": False, "off": False, "no": False}
OFF = (False, 0, "0", "off", "none", "no", "false", "never")


def apply(report: Report, document: Document, rules: Mapping[str, Rule], trainer: str) -> None:
    """Gives every setting of a document that has no line yet its line.

    Names in `rules` may hold * for any text; list positions are written #.
    """
    for entry in document.entries():
        if report.answered(entry):
            continue
        rule = find_rule(rules, entry.key)
        if entry.value is None or entry.value in ("", [], {}):
            report.ignored(entry, "it is empty")
        elif rule is None:
            report.unsupported(entry, f"no setting of {trainer} that is known here")
        else:
            rule(report, entry)


def alone(documents: Sequence[Document]) -> None:
    """Raises UserError if there is more than one: they would overrule each other."""
    if len(documents) > 1:
        raise fail(", ".join(document.label for document in documents), "are several runs.", "Import one run at a time.")


def overrule(report: Report, entries: Mapping[str, Entry], strong: str, weak: str) -> None:
    """Of two settings the weak one changes nothing if the strong one says anything, whichever stands first."""
    holds, other = entries.get(strong), entries.get(weak)
    if holds and other and plain(holds.value) not in ("", "none"):
        report.ignored(other, f"{holds.name} overrules it")


def find_rule(rules: Mapping[str, Rule], key: str) -> Rule | None:
    """The rule of a setting, by its name or the first pattern that fits it."""
    name = re.sub(r"(?<![^.])\d+(?![^.])", "#", key)
    return rules.get(name) or next((rule for pattern, rule in rules.items() if fnmatchcase(name, pattern)), None)


def _known(target: str) -> Any:
    """The default of a setting of the job."""
    part, _, name = target.partition(".")
    return DEFAULTS[part][name]


def to(target: str, why: str = "") -> Rule:
    """Takes the value over as the setting `target` of the job."""
    _known(target)

    def rule(report: Report, entry: Entry) -> None:
        value = as_setting(target, entry.value)
        report.put(target, value)
        report.mapped(entry, target, value, why)

    return rule


def once(target: str) -> Rule:
    """Takes the value over if the job has no other: there each dataset has its own, here one serves all."""
    _known(target)

    def rule(report: Report, entry: Entry) -> None:
        value, known = as_setting(target, entry.value), report.value(target)
        if known is not None and known != value:
            report.unsupported(entry, f"one value serves all here: {target} is {known}")
            return
        report.put(target, value)
        report.mapped(entry, target, value)

    return rule


def choice(target: str, values: Mapping[str, Any], why: str = "") -> Rule:
    """Takes a named choice over; names that `values` does not have are unsupported. Case, - and _ do not matter."""
    _known(target)

    def rule(report: Report, entry: Entry) -> None:
        name = plain(entry.value)
        if name not in values:
            report.unsupported(entry, why or f"{target} knows only: {', '.join(sorted({str(v) for v in values.values()}))}")
            return
        report.put(target, values[name])
        report.mapped(entry, target, values[name])

    return rule


def ignore(why: str) -> Rule:
    """The setting changes nothing here."""
    return lambda report, entry: report.ignored(entry, why)


def refuse(why: str) -> Rule:
    """The job cannot hold the setting."""
    return lambda report, entry: report.unsupported(entry, why)


def only(accepted: Sequence[Any], fine: str, otherwise: str) -> Rule:
    """Ignored for the values that mean what is done here anyway, unsupported for others."""
    names = {plain(value) for value in accepted}

    def rule(report: Report, entry: Entry) -> None:
        if plain(entry.value) in names:
            report.ignored(entry, fine)
        else:
            report.unsupported(entry, otherwise)

    return rule


def off(otherwise: str) -> Rule:
    """Ignored where it is switched off, unsupported where it is on."""
    return only(OFF, "it is off", otherwise)


def where_on(rule: Rule) -> Rule:
    """The rule where the setting is switched on; ignored where it is off."""
    return lambda report, entry: report.ignored(entry, "it is off") if is_off(entry.value) else rule(report, entry)


def run_name(report: Report, entry: Entry) -> None:
    """The rule for an output folder or file: its last part names the run; runs lie in ComfyUI's output folder."""
    last = re.split(r"[\\/]", str(entry.value).rstrip("\\/"))[-1]
    name = re.sub(r'[<>:"|?*\x00-\x1f]', "-", re.sub(r"\.safetensors$", "", last)).strip(". ")
    if not name:
        report.ignored(entry, "runs lie in ComfyUI's output folder")
        return
    report.put("output.name", name)
    report.mapped(entry, "output.name", name, "runs and LoRA files lie in ComfyUI's output folder, under this name")


def targets(report: Report, entry: Entry) -> None:
    """The rule for the names of the layers that get a LoRA, or a pattern of them in diffusers' names."""
    words = list(map(str, entry.value)) if isinstance(entry.value, list) else re.split(r"[(),|\s]+", str(entry.value).replace("\\", ""))
    blocks = ("", "blocks.*", ".*", "transformer_blocks", "transformer_blocks.*", "single_transformer_blocks")
    names = {re.sub(r"^to_out$", "to_out.0", word.removesuffix("$").replace("ffn.", "ff.")) for word in words if word not in blocks}
    for ours, known in (("attention", ATTENTION), ("feed-forward", FEED_FORWARD), ("all", ATTENTION | FEED_FORWARD)):
        if names == known:
            report.put("adapter.targets", ours)
            report.mapped(entry, "adapter.targets", ours)
            return
    report.unsupported(entry, "adapter.targets knows only: all, attention, feed-forward")


def follow(report: Report, document: Document, entry: Entry, wanted: Callable[[Document], bool]) -> list[Document]:
    """The documents in a file that a setting names, if it is here and none of its kind was read; gives the setting its line."""
    known = next((other for other in report.documents if other is not document and wanted(other)), None)
    if known:
        report.ignored(entry, f"{known.path.name} is read for it")
        return []
    path = document.beside(str(entry.value))
    found = [other for other in read(path) if wanted(other)] if path else []
    if found:
        report.documents += found
        report.ignored(entry, f"read from {path}")
    else:
        report.unsupported(entry, "this file is not here; give it too")
    return found


def is_off(value: Any) -> bool:
    """Whether a value switches something off."""
    return plain(value) in map(plain, OFF)


def plain(value: Any) -> str:
    """A choice without case, - and _: "BFLOAT_16" and "bfloat16" are the same."""
    number = as_number(value)
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        return f"{number:g}"
    return re.sub(r"[-_ ]", "", str(value).lower())


def as_setting(target: str, value: Any) -> Any:
    """A value in the type of the job's setting; left as it is where that cannot be, so that the job's check names it."""
    default = _known(target)
    if isinstance(default, bool):
        return _SWITCH.get(plain(value), value)
    if isinstance(default, (int, float)):
        return as_number(value)
    return str(value) if isinstance(default, str) and not isinstance(value, (list, dict)) else value


def as_number(value: Any) -> Any:
    """Text as a number, whole if it is whole; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return value
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return value
    return int(number) if number.is_integer() and abs(number) < 2**53 else number
