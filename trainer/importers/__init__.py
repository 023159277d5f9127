"""Importers: other trainers' configuration files as a TrainingJob, with a line on each of their settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ..errors import fail
from . import diffusion_pipe, fastvideo, finetrainers, musubi, onetrainer, sample_prompts
from .documents import Document, read
from .legality import make_legal
from .model_rules import note_model
from .optimizer_arguments import settle_options
from .result import Imported, Line, Report
from .sources import note_missing
from .table import remaining, table


class Importer(Protocol):
    """One foreign format; a module of this package is one."""

    def recognises(self, document: Document) -> bool:
        """Whether a file is of this format, by what it holds."""
        ...

    def convert(self, documents: Sequence[Document], report: Report) -> list[Document]:
        """Fills the report from files of this format; returns them and those that they name and that were read."""
        ...


IMPORTERS: dict[str, Importer] = {  # the first that recognises a file reads it
    "diffusion-pipe": diffusion_pipe,
    "musubi-tuner": musubi,
    "OneTrainer": onetrainer,
    "FastVideo": fastvideo,
    "finetrainers": finetrainers,
    "sample prompts": sample_prompts,
}
PROMPTS = "sample prompts"


def import_config(paths: Sequence[Path | str]) -> Imported:
    """Reads the files of one training run of another trainer; sample prompts may come with any of them.

    Settings that exclude each other are made to agree. Values of the job are not checked: `TrainingJob.parse` names what it
    cannot take. Raises UserError for a file that cannot be read, is of no known format, or is of another trainer than the rest.
    """
    report = Report([document for path in dict.fromkeys(map(Path, paths)) for document in read(path)])
    report.notes += [f"{document.path.name}: {text}." for document in report.documents for text in document.unread]
    groups: dict[str, list[Document]] = {}
    for document in report.documents:
        groups.setdefault(_format(document, report.documents), []).append(document)
    strangers = groups.pop("", [])
    if bad := next((document for document in strangers if not document.several or len(strangers) == len(report.documents)), None):
        known = "TOML of diffusion-pipe or musubi-tuner, OneTrainer JSON, command lines of musubi-tuner, finetrainers or FastVideo"
        raise fail(bad.label, "is no configuration of a trainer known here.", f"Known: {known}, validation.json or .csv.")
    report.notes += [f"{document.label} is a command of no trainer known here: it was left out." for document in strangers]
    trainers = [name for name in groups if name != PROMPTS]
    if len(trainers) > 1:
        raise fail(", ".join(map(str, paths)), f"are of several trainers: {', '.join(trainers)}.", "Import one run at a time.")
    documents: list[Document] = []
    order = [*trainers, *(name for name in groups if name == PROMPTS)]
    for name in order:
        documents += IMPORTERS[name].convert(groups[name], report)
    note_missing(report)
    settle_options(report)
    make_legal(report)
    note_model(report)
    report.notes.append("Settings that the file leaves out have Video Trainer's defaults, not the other trainer's.")
    return report.result(" and ".join(order), (entry for document in documents for entry in document.entries()))


def _format(document: Document, others: Sequence[Document]) -> str:
    """The trainer that a file is of, or "" if it is of none."""
    name = next((name for name, importer in IMPORTERS.items() if importer.recognises(document)), "")
    return "musubi-tuner" if not name and musubi.is_named(document, others) else name


__all__ = ["IMPORTERS", "Imported", "Importer", "Line", "import_config", "remaining", "table"]
