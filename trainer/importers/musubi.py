"""musubi-tuner: its commands that train and that encode, the TOML that --config_file names, and its dataset TOML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .documents import Document
from .families import Family, find_family
from .model_rules import family, note_shift
from .musubi_dataset import NAME, convert_dataset, is_dataset
from .musubi_files import FAMILIES, config_file, encodes, is_command, is_settings, model_of, parts, program
from .musubi_rules import ENCODING, PARTS, TRAINING
from .musubi_training import add_together
from .result import Entry, Report, last_part
from .rules import alone, apply, follow

_FIRST = ("optimizer_type", "mixed_precision")  # what other settings depend on
_MODULES = {"lora": "hv", "lora_hv_1_5": "hv_1_5", "lora_wan": "wan", "lora_framepack": "fpack"}  # of network_module


def recognises(document: Document) -> bool:
    """A command of one of its programs, a TOML with their settings, or a dataset TOML."""
    return is_command(document) or is_settings(document) or is_dataset(document)


def is_named(document: Document, others: Sequence[Document]) -> bool:
    """Whether one of its commands names this file as that of its settings, whatever it holds."""
    return not document.program and document.path.name in [config_file(other) for other in others if is_command(other)]


def convert(documents: Sequence[Document], report: Report) -> list[Document]:
    """Fills the report from commands and TOML files, and from those that they name if they are here; returns all that was read."""
    known = {id(document): parts(document) for document in documents}
    report.documents = [part for document in report.documents for part in known.get(id(document), [document])]
    every = [part for document in documents for part in known[id(document)]]
    commands = [part for part in every if is_command(part) and not encodes(part)]
    alone(commands)
    for document in commands:
        if entry := document.entry("config_file"):
            every += _settings_file(report, document, entry)
    settings = [part for part in every if not part.program and not is_dataset(part)]
    alone(settings)
    training, encoding = [*commands, *settings], [part for part in every if encodes(part)]
    datasets = _datasets([part for part in every if is_dataset(part)], [*training, *encoding], report)
    if training:
        _train(training, report)
    taken = {entry.key: entry for document in training for entry in document.entries() if report.taken_over(entry)}
    for document in encoding:
        if report.family is None:
            _family(document, {}, report)
        _encode(document, taken, report)
    for document in datasets:
        if not all(map(report.answered, document.entries())):
            convert_dataset(document, report)
    return [*training, *encoding, *datasets]


def _datasets(given: Sequence[Document], commands: Sequence[Document], report: Report) -> list[Document]:
    """The dataset files, those that commands name too; datasets in a file of settings count if it is what they name, or they name none."""
    found = list(given)
    beside = [document for document in given if any(document.path == other.path for other in commands)]
    named = [(document, entry) for document in commands if (entry := document.entry("dataset_config"))]
    names = {last_part(str(entry.value)) for _, entry in named}
    lost = [document for document in beside if names and document.path.name not in names]
    for document, entry in named:
        found += follow(report, document, entry, lambda other: is_dataset(other) and other not in lost)
    for entry in (entry for document in lost for entry in document.entries()):
        report.ignored(entry, "dataset_config names another file of datasets")
    return found


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
    if program(documents[0]).endswith("_train"):
        report.notes.append("The command trains the whole model. This version trains a LoRA.")
    if "network_alpha" not in given:
        report.notes.append(f"{NAME} trains a LoRA with an alpha of 1 unless it is told another: adapter.alpha 1 does the same.")


def _encode(document: Document, taken: dict[str, Entry], report: Report) -> None:
    """A command that encodes: its files are taken where neither a command that trains nor one before it names others."""
    for entry in document.entries():
        first = taken.get(entry.key)
        if entry.key in PARTS and first and first.value != entry.value and entry.value not in (None, ""):
            report.unsupported(entry, f"{first.name} of {last_part(first.file)} names another, which is taken: {first.value}")
    apply(report, document, ENCODING, NAME)
    taken.update((entry.key, entry) for entry in document.entries() if report.taken_over(entry))


def _family(document: Document, given: dict[str, Entry], report: Report) -> None:
    """The family by the program's name or the LoRA's module; of Wan the task says more."""
    module, task = given.get("network_module"), given.get("task")
    kind = model_of(document) or (_MODULES.get(str(module.value).rpartition(".")[2], "") if module else "")
    if kind == "wan" and task is not None:
        family(report, replace(task, value=f"wan {task.value}".replace("-FC", " fun control")))
    elif kind:
        report.family = known = find_family(FAMILIES.get(kind, kind)) or Family(f"'{kind}'")
        if known.trained:
            report.put("model.family", known.trained)
        else:
            report.notes.append(f"{known} cannot be trained by this version; choose another model in model.source.")


def _settings_file(report: Report, document: Document, entry: Entry) -> list[Document]:
    """What a file holds that a command names as that of its settings."""
    name = config_file(document)
    named = replace(entry, value=f"{str(entry.value).removesuffix('.toml')}.toml")
    found = follow(report, document, named, lambda other: not other.program and (other.path.name == name or is_settings(other)))
    inside = [part for other in found for part in parts(other)]
    report.documents = [*(other for other in report.documents if other not in found), *inside]
    return inside
