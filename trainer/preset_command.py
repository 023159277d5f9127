"""The command preset: what a goal's preset sets for a model and a card, as lines and as part of a job file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import fail
from .files import not_written, write_json
from .job import ComputeSettings, ModelSettings
from .options import within
from .presets import GOALS, memory_here, preset

if TYPE_CHECKING:
    from .models.base import FamilySpec


def add_preset_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the command line."""
    command = commands.add_parser("preset", help="show the settings to begin with, for a goal, a model and a card; loads no weights")
    command.add_argument("model", help="diffusers folder, hub id that is here, a job file whose model is meant, or family/variant")
    command.add_argument("--goal", choices=GOALS, required=True, help="what is to be taught")
    command.add_argument("--memory", type=within(1, 1024), default=0.0, metavar="GB", help="of the card; default: the one here, else 24")
    command.add_argument("--models", type=Path, action="append", default=[], help="folder holding diffusers model folders")
    command.add_argument("--output", type=Path, help="job file to write; dataset.sources is still to be filled in")
    command.set_defaults(command=_preset)


def _preset(arguments: argparse.Namespace) -> int:
    from .experts import trained_experts

    if arguments.output is not None and arguments.output.exists():
        raise fail(str(arguments.output), "is there already.", "Say where to write: --output other.json.")
    model, spec = _model(arguments.model, arguments.models)
    memory = arguments.memory or memory_here(ComputeSettings())
    made = preset(spec, arguments.goal, memory, len(trained_experts(spec, model.expert)))
    print("\n".join(made.lines()))
    if arguments.output is not None:
        named = model.model_dump(mode="json", exclude_defaults=True)
        try:
            write_json(arguments.output, {**({"model": named} if named else {}), **made.parts()})
        except OSError as error:
            raise not_written(arguments.output, error, "Choose another file with --output.") from None
        print(f"job:  {arguments.output}")
    return 0


def _model(text: str, folders: list[Path]) -> tuple[ModelSettings, FamilySpec]:
    """A model's settings and facts, of its files or by the name of a known variant alone."""
    from .models import named_variant, open_model
    from .source import find_model, job_or_model

    model = job_or_model(text).model
    if known := named_variant(model.source, folders):
        return model.model_copy(update={"source": ""}), known.spec
    return model, open_model(find_model(model, folders, None)).spec
