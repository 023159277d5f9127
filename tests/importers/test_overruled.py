"""Of settings that set one of the job to different values one is said to be taken over: that whose value the job has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.importers.examples import RUNS
from trainer.importers import Imported, import_config
from trainer.importers.result import ADDED, DEFAULTS, Entry, Report


def lines(result: Imported) -> dict[str, tuple[str, str]]:
    return {line.source: (line.kind, line.why) for line in result.lines}


def test_the_setting_that_holds_is_taken_over_and_it_alone() -> None:
    """Both were said to be taken over."""
    report = Report()
    first, second = Entry("/runs/a.sh", "old", 1), Entry("/runs/b.toml", "new", 2)
    for entry in (first, second):
        report.put("adapter.rank", entry.value)
        report.mapped(entry, "adapter.rank", entry.value)
    told = report.result("", [first, second]).lines
    assert [(line.kind, line.target) for line in told] == [("unsupported", ""), ("mapped", "adapter.rank")]
    assert told[0].why == "new of b.toml overrules it: adapter.rank is 2"


@pytest.mark.parametrize("run", RUNS)
def test_what_is_said_to_be_taken_over_is_in_the_job(run: str, written: Any) -> None:
    result = import_config(written(run))
    for line in result.lines:
        part, _, name = line.target.partition(".")
        usual = DEFAULTS.get(part, {}).get(name, [])
        if line.kind == "mapped" and not isinstance(usual, list) and line.target not in ADDED:
            assert result.job.get(part, {}).get(name, usual) == line.value, line


def test_two_models_of_fastvideos_commands(tmp_path: Path) -> None:
    script = "python -m fastvideo.train --model_path a/one --pretrained_model_name_or_path a/two --learning_rate 1e-4 --lora_rank 8\n"
    (tmp_path / "a.sh").write_text(script, encoding="utf-8")
    result = import_config([tmp_path / "a.sh"])
    told = lines(result)
    taken = result.job["model"]["source"]
    names = {"a/one": "--model_path", "a/two": "--pretrained_model_name_or_path"}
    lost = next(name for place, name in names.items() if place != taken)
    assert told[names[taken]][0] == "mapped" and told[lost] == ("unsupported", f"{names[taken]} overrules it: model.source is {taken}")


@pytest.mark.parametrize("turned", [False, True])
def test_what_onetrainer_has_of_the_transformer_overrules_what_it_has_of_the_model(tmp_path: Path, turned: bool) -> None:
    """It did only where it stood behind."""
    parts: dict[str, Any] = {
        "learning_rate": 1e-4, "base_model_name": "/m/base.safetensors",
        "transformer": {"learning_rate": 3e-4, "model_name": "/m/other.safetensors"}, "training_method": "LORA",
    }  # fmt: skip
    order = list(parts)[::-1] if turned else list(parts)
    (tmp_path / "a.json").write_text(json.dumps({name: parts[name] for name in order}), encoding="utf-8")
    result = import_config([tmp_path / "a.json"])
    assert result.job["optimizer"]["learning_rate"] == 3e-4 and result.job["model"]["transformer"] == "/m/other.safetensors"
    told = lines(result)
    assert told["learning_rate"] == ("ignored", "transformer.learning_rate overrules it") and told["base_model_name"][0] == "unsupported"


@pytest.mark.parametrize(
    ("name", "text", "ends"),
    [
        ("a.toml", "[model]\ntype = 'wan2.2'\ntransformer_path = '/m/a.safetensors'\nmin_t = 0.875\nmax_t = 0.9\n",
         ("model.min_t", "model.max_t")),
        ("a.json", '{"training_method": "LORA", "model_type": "WAN_2_2", "min_noising_strength": 0.875, "max_noising_strength": 0.9}',
         ("min_noising_strength", "max_noising_strength")),
    ],
)  # fmt: skip
def test_two_ends_at_boundaries_choose_no_expert(tmp_path: Path, name: str, text: str, ends: tuple[str, str]) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    result = import_config([tmp_path / name])
    told = lines(result)
    assert "expert" not in result.job.get("model", {}) and {told[end][0] for end in ends} == {"unsupported"}
    assert all("neither expert" in told[end][1] for end in ends)
