"""Settings that exclude each other are refused before anything loads, all at once, with values and cure."""

from __future__ import annotations

from typing import Any

import pytest

from trainer.combinations import ILLEGAL, illegal, without_effect
from trainer.job import OptimizerSettings, TrainingJob
from trainer.optimizer_kinds import own_name, usual_rate

OFFLOAD = {"offload_state": True, "max_grad_norm": 0}
CASES: list[tuple[dict[str, Any], tuple[str, ...], str]] = [
    ({"optimizer": {"offload_state": True}}, ("optimizer.offload_state", "optimizer.max_grad_norm"), "true and 1 do not go together"),
    ({"optimizer": OFFLOAD, "schedule": {"accumulation": 4}}, ("optimizer.offload_state", "schedule.accumulation"), "true and 4"),
    ({"optimizer": OFFLOAD, "compute": {"dtype": "fp16"}}, ("optimizer.offload_state", "compute.dtype"), "true and fp16"),
    ({"optimizer": {**OFFLOAD, "name": "Muon"}}, ("optimizer.offload_state", "optimizer.name"), "true and Muon"),
    ({"optimizer": OFFLOAD, "adapter": {"precision": "bf16"}}, ("optimizer.offload_state", "adapter.precision"), "true and bf16"),
    ({"optimizer": {"name": "Prodigy", "learning_rate": 1, "lora_plus_ratio": 16}}, ("optimizer.name", "optimizer.lora_plus_ratio"), "16"),
    ({"optimizer": {"name": "Prodigy"}}, ("optimizer.name", "optimizer.learning_rate"), "Prodigy and 0.0002"),
    ({"optimizer": {"name": "Schedule-free AdamW", "beta1": 0}}, ("optimizer.name", "optimizer.beta1"), "Schedule-free AdamW and 0"),
    ({"optimizer": {"name": "other"}}, ("optimizer.name", "optimizer.other"), "other and nothing"),
    ({"optimizer": {"other": "SOAP"}}, ("optimizer.name", "optimizer.other"), "AdamW and SOAP"),
]


@pytest.mark.parametrize(("parts", "settings", "values"), CASES, ids=[f"{' + '.join(case[1])}: {case[2]}" for case in CASES])
def test_each_line_of_the_table(parts: dict[str, Any], settings: tuple[str, ...], values: str) -> None:
    (problem,) = illegal(TrainingJob.parse(parts))
    assert problem.where == ", ".join(settings) and values in problem.found and problem.cure.startswith("Set ")


@pytest.mark.parametrize("number", range(len(CASES)))
def test_the_way_out_of_each_line_is_legal(number: int) -> None:
    setting, value = ILLEGAL[number].way_out
    assert setting in ILLEGAL[number].settings
    part, _, name = setting.partition(".")
    parts = CASES[number][0]
    assert not illegal(TrainingJob.parse({**parts, part: {**parts.get(part, {}), name: value}}))


def test_every_line_has_its_case() -> None:
    assert [line.settings for line in ILLEGAL] == [case[1] for case in CASES]


@pytest.mark.parametrize("other", ["Prodigy", " prodigy", "PRODIGY"])
def test_a_line_looks_at_the_class_that_is_used(other: str) -> None:
    """Prodigy's lines were got round by naming its class as other."""
    chosen = {"name": "other", "other": other}
    low, plus = illegal(TrainingJob.parse({"optimizer": {**chosen, "lora_plus_ratio": 16}}))[::-1]
    assert "other and 0.0002 do not go together: Prodigy finds the rate" in low.found and "one rate for all matrices" in plus.found
    assert not illegal(TrainingJob.parse({"optimizer": {**chosen, "learning_rate": 1}}))
    assert not illegal(TrainingJob.parse({"optimizer": {"name": "other", "other": "Lion", "lora_plus_ratio": 16}}))


def test_the_class_that_is_used_has_the_name_of_its_line() -> None:
    def named(other: str) -> str:
        return own_name(OptimizerSettings(name="other", other=other))

    assert [named(other) for other in ("lion", "ScheduleFreeAdamW", " CAME ")] == ["Lion", "Schedule-free AdamW", "CAME"]
    for other in ("AdaFactor", "Muon", "ADOPT", ""):  # of the first two torch's are chosen by name, other programs
        assert named(other) == "other"
    assert own_name(OptimizerSettings(name="SGD")) == "SGD"
    assert usual_rate(OptimizerSettings(name="other", other="lion", learning_rate=0.1)).startswith("Lion is usually trained")


def test_settings_of_a_card_are_told_where_there_is_none() -> None:
    job = TrainingJob.parse({"memory": {"fit_into": 8}, "optimizer": OFFLOAD})
    assert [where for where, _ in without_effect(job, "cpu")] == ["memory.fit_into", "optimizer.offload_state"]
    assert not without_effect(job, "cuda") and not without_effect(TrainingJob(), "cpu")


def test_all_are_told_at_once_and_defaults_are_legal() -> None:
    parts = {"optimizer": {"offload_state": True, "other": "SOAP"}, "schedule": {"accumulation": 2}, "compute": {"dtype": "fp16"}}
    assert len(illegal(TrainingJob.parse(parts))) == 4
    assert not illegal(TrainingJob()) and not illegal(TrainingJob.parse({"optimizer": OFFLOAD}))
    assert not illegal(TrainingJob.parse({"optimizer": {"name": "other", "other": "SOAP"}}))
