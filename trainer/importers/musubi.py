"""musubi-tuner: its commands that train and that encode, the TOML that --config_file names, and its dataset TOML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .documents import Document
from .families import Family, find_family
from .model_rules import family, note_shift
from .musubi_dataset import NAME, convert_dataset, is_dataset
from .musubi_rules import ENCODING, PARTS, TRAINING
from .musubi_training import add_together
from .result import Entry, Report, last_part
from .rules import alone, apply, follow

_ARGUMENTS = ("optimizer_args", "network_args", "lr_scheduler_args")  # each of name=value
_FAMILIES = {"hv_1_5": "HunyuanVideo-1.5", "hv": "HunyuanVideo", "wan": "Wan", "fpack": "FramePack"}  # as its programs begin
_FIRST = ("optimizer_type", "mixed_precision")  # what other settings depend on
_OTHERS = ("qwen_image", "zimage", "flux_kontext", "flux_2", "kandinsky5", "hidream_o1", "ideogram4", "krea2")
_MODULES = {"lora": "hv", "lora_hv_1_5": "hv_1_5", "lora_wan": "wan", "lora_framepack": "fpack"}  # of network_module
_PROGRAM = re.compile(
    rf"(?:({'|'.join((*_FAMILIES, *_OTHERS))})_(?:train|train_network|cache_\w+)|cache_(?:latents|text_encoder_outputs))\.py"
)


def recognises(document: Document) -> bool:
    """A command of one of its programs, a TOML with their settings, or a dataset TOML."""
    return _is_command(document) or _is_settings(document) or is_dataset(document)


def _is_command(document: Document) -> bool:
    return _PROGRAM.fullmatch(document.program) is not None


def _is_settings(document: Document) -> bool:
    """What --config_file names: settings of a command, in any sections."""
    data = _flat(document).data
    return not document.program and bool({"dit", "network_module"} & data.keys()) and "pretrained_model_name_or_path" not in data


def _encodes(document: Document) -> bool:
    return _is_command(document) and "cache_" in document.program


def convert(documents: Sequence[Document], report: Report) -> list[Document]:
    """Fills the report from commands and TOML files, and from those that they name if they are here; returns all that was read."""
    datasets = [document for document in documents if is_dataset(document)]
    flat = {id(document): _flat(document) for document in documents if not is_dataset(document)}
    report.documents = [flat.get(id(document), document) for document in report.documents]
    encoding = [document for document in flat.values() if _encodes(document)]
    commands = [document for document in flat.values() if document.program and not _encodes(document)]
    settings = [document for document in flat.values() if not document.program]
    alone(commands)
    alone(settings)
    for document in commands:
        if entry := document.entry("config_file"):
            settings += _settings_file(report, document, entry)
    training = [*commands, *settings]
    for document in [*training, *encoding]:
        if entry := document.entry("dataset_config"):
            datasets += follow(report, document, entry, is_dataset)
    if training:
        _train(training, report)
    taken = {entry.key: entry for document in training for entry in document.entries() if report.taken_over(entry)}
    for document in encoding:
        if report.family is None:
            _family(document, {}, report)
        _encode(document, taken, report)
    for document in datasets:
        convert_dataset(document, report)
    return [*training, *encoding, *datasets]


def _train(documents: Sequence[Document], report: Report) -> None:
    """A command and its TOML as one: what the command line says holds."""
    given: dict[str, Entry] = {}
    for document in documents:
        for entry in document.entries():
            if given.setdefault(entry.key, entry) is not entry and not report.answered(entry):
                report.ignored(entry, "the command line says otherwise, and holds")
    _family(documents[0], given, report)
    for name in _FIRST:
        if (entry := given.get(name)) and entry.value:
            TRAINING[name](report, entry)
    add_together(report, given)
    for document in documents:
        apply(report, document, TRAINING, NAME)
    note_shift(report, NAME)
    if documents[0].program.endswith("_train.py"):
        report.notes.append("The command trains the whole model. This version trains a LoRA.")
    if "network_alpha" not in given:
        report.notes.append(f"{NAME} trains a LoRA with an alpha of 1 unless it is told another: adapter.alpha 1 does the same.")


def _encode(document: Document, taken: dict[str, Entry], report: Report) -> None:
    """A command that encodes: what it says of the parts that encode holds where no command before it, nor one that trains, says otherwise."""
    for entry in document.entries():
        first = taken.get(entry.key)
        if entry.key in PARTS and first and first.value != entry.value and entry.value not in (None, ""):
            report.unsupported(entry, f"{first.name} of {last_part(first.file)} names another, which is taken: {first.value}")
    apply(report, document, ENCODING, NAME)
    taken.update((entry.key, entry) for entry in document.entries() if report.taken_over(entry))


def _family(document: Document, given: dict[str, Entry], report: Report) -> None:
    """The family by the program's name or the LoRA's module; of Wan the task says more."""
    program, module, task = _PROGRAM.fullmatch(document.program), given.get("network_module"), given.get("task")
    kind = _MODULES.get(str(module.value).rpartition(".")[2], "") if module else ""
    if program:
        kind = program[1] or "hv"
    if kind == "wan" and task is not None:
        family(report, replace(task, value=f"wan {task.value}".replace("-FC", " fun control")))
    elif kind:
        report.family = known = find_family(_FAMILIES.get(kind, kind)) or Family(f"'{kind}'")
        if known.trained:
            report.put("model.family", known.trained)
        else:
            report.notes.append(f"{known} cannot be trained by this version; choose another model in model.source.")


def _settings_file(report: Report, document: Document, entry: Entry) -> list[Document]:
    """The TOML that a command names, with its ending or without."""
    name = str(entry.value)
    named = replace(entry, value=name if name.endswith(".toml") else f"{name}.toml")
    found = [_flat(other) for other in follow(report, document, named, _is_settings)]
    report.documents = [*(other for other in report.documents if not any(other.path == new.path for new in found)), *found]
    return found


def _flat(document: Document) -> Document:
    """Settings without the sections that they stand in, and arguments of name=value as settings of that name."""
    data: dict[str, Any] = {}
    for name, value in document.data.items():
        if isinstance(value, dict) and value and name not in ("launcher", "environment"):
            data |= value
        else:
            data[name] = value
    for name in _ARGUMENTS:
        given = data.get(name)
        parts = [str(part).partition("=") for part in (given if isinstance(given, list) else [given])]
        if parts and all(key and sign for key, sign, _ in parts):
            data[name] = {key.strip(): value.strip() for key, _, value in parts}
    return replace(document, data=data)
