"""Writes the examples into a folder and imports them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.importers.examples import RUNS
from trainer.importers import Imported, import_config


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], list[Path]]:
    """Writes the files of a run, its {data} being a folder that is there; returns them."""

    def write(run: str) -> list[Path]:
        for folder in ("videos", "more"):
            (tmp_path / folder).mkdir(exist_ok=True)
        files = []
        for name, text in RUNS[run].items():
            files.append(tmp_path / name)
            files[-1].write_text(text.replace("{data}", tmp_path.as_posix()), encoding="utf-8")
        return files

    return write


@pytest.fixture
def imported(written: Callable[[str], list[Path]]) -> Callable[[str], Imported]:
    """Imports a run by its first file."""
    return lambda run: import_config(written(run)[:1])
