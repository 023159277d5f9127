"""No imported job holds settings that training refuses together; what gave way is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.importers.examples import RUNS
from tests.test_combinations import CASES
from trainer.combinations import ILLEGAL, illegal
from trainer.importers import import_config
from trainer.importers.legality import make_legal
from trainer.importers.result import Entry, Report
from trainer.job import TrainingJob


@pytest.mark.parametrize("number", range(len(CASES)))
def test_each_line_of_the_table_finds_its_way_out(number: int) -> None:
    parts: dict[str, Any] = CASES[number][0]
    report = Report(job={part: dict(values) for part, values in parts.items()})
    setting, value = ILLEGAL[number].way_out
    entry = Entry("a.toml", "foreign", "as it was there")
    report.mapped(entry, setting, "as the job had it")
    make_legal(report)
    assert not illegal(TrainingJob.parse(report.job)) and report.value(setting) == value
    (line,) = report.result("", [entry]).lines
    assert (line.kind, line.target, line.value) == ("unsupported", "", "as it was there")
    assert ILLEGAL[number].why in line.why and f"{setting} is " in line.why


def test_what_no_line_speaks_of_alone_is_a_note(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[model]\ntype = 'wan'\n[adapter]\ntype = 'lora'\n[optimizer]\ntype = 'Prodigy'\n", encoding="utf-8")
    result = import_config([file])
    assert result.job["optimizer"] == {"name": "Prodigy", "learning_rate": 1}
    assert any("Prodigy finds the rate by itself" in note for note in result.notes)


def test_several_at_once_and_values_that_cannot_be() -> None:
    report = Report(job={"optimizer": {"offload_state": True, "name": "Prodigy"}, "compute": {"dtype": "fp16"}})
    make_legal(report)
    assert not illegal(TrainingJob.parse(report.job))
    assert report.job["optimizer"] == {"offload_state": False, "name": "Prodigy", "learning_rate": 1}
    wrong: dict[str, Any] = {"optimizer": {"offload_state": True}, "adapter": {"rank": 9999}}
    report = Report(job=wrong)
    make_legal(report)
    assert report.job == wrong and not report.notes


@pytest.mark.parametrize("run", RUNS)
def test_the_examples_are_legal(run: str, written: Any) -> None:
    assert not illegal(TrainingJob.parse(import_config(written(run)[:1]).job))
