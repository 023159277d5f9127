"""Settings that exclude each other are refused before anything loads, all at once, with values and cure."""

from __future__ import annotations

from typing import Any

import pytest

from trainer.combinations import ILLEGAL, illegal
from trainer.job import TrainingJob

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


def test_all_are_told_at_once_and_defaults_are_legal() -> None:
    parts = {"optimizer": {"offload_state": True, "other": "SOAP"}, "schedule": {"accumulation": 2}, "compute": {"dtype": "fp16"}}
    assert len(illegal(TrainingJob.parse(parts))) == 4
    assert not illegal(TrainingJob()) and not illegal(TrainingJob.parse({"optimizer": OFFLOAD}))
    assert not illegal(TrainingJob.parse({"optimizer": {"name": "other", "other": "SOAP"}}))
