"""python -m trainer import."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.__main__ import main
from trainer.job import TrainingJob

Write = Callable[[str], list[Path]]


def test_import_prints_the_lines_and_writes_the_job(
    written: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    training, dataset = written("diffusion-pipe")
    monkeypatch.chdir(tmp_path)
    assert main(["import", str(training), "--dataset", str(dataset)]) == 0
    printed = capsys.readouterr().out
    for heading in ("taken over (", "rounded to what the model takes (1)", "NOT taken over", "changes nothing here ("):
        assert heading in printed
    assert "job:  job.json" in printed and "720x572 -> 720x576" in printed
    assert TrainingJob.load(tmp_path / "job.json").adapter.rank == 32

    assert main(["import", str(training)]) == 1  # a job that is there is not overwritten unasked
    assert "is there already" in capsys.readouterr().err
    assert main(["import", str(training), "--output", str(tmp_path / "sub" / "other.json")]) == 0
    assert TrainingJob.load(tmp_path / "sub" / "other.json") == TrainingJob.load(tmp_path / "job.json")
    assert main(["import", str(training), "--output", str(tmp_path / "sub" / "other.json")]) == 1
    assert "is there already" in capsys.readouterr().err


def test_a_job_that_does_not_validate_is_written_with_its_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, target = tmp_path / "train.sh", tmp_path / "job.json"
    file.write_text("python train.py --model_name wan --training_type lora --rank 9999 --lr fast\n", encoding="utf-8")
    assert main(["import", str(file), "--output", str(target)]) == 2
    problems = capsys.readouterr().err
    assert "adapter.rank: 9999" in problems and "optimizer.learning_rate: 'fast'" in problems and target.is_file()
