"""The import command: another trainer's configuration becomes a job file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError, fail
from ..files import write_json
from ..job import TrainingJob
from . import import_config
from .table import table


def run_import(files: Sequence[Path], output: Path | None) -> int:
    """Writes the job and prints what became of each setting; 0 if the job can be trained, 2 if it needs work first."""
    target = output or Path("job.json")
    if target.exists():
        raise fail(str(target), "is there already.", "Say where to write: --output other.json.")
    imported = import_config(files)
    print(table(imported))
    try:
        write_json(target, imported.job)
    except OSError as error:
        raise fail(str(target), f"cannot be written: {error}.", "Choose another file with --output.") from None
    print(f"\njob:  {target}")
    try:
        TrainingJob.parse(imported.job)
    except UserError as error:
        print(f"error: the job needs work before it can be trained:\n{error}", file=sys.stderr)
        return 2
    return 0
