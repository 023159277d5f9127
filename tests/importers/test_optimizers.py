"""Optimizers of other trainers: names, classes of pytorch_optimizer, betas and arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer.combinations import illegal
from trainer.importers import import_config
from trainer.importers.result import Imported
from trainer.job import TrainingJob


def imported(folder: Path, optimizer: str, top: str = "") -> Imported:
    """A file of diffusion-pipe with this [optimizer], and settings of the whole run."""
    file = folder / "config.toml"
    file.write_text(
        f"{top}\n[model]\ntype = 'wan'\nckpt_path = '/models/a'\n[adapter]\ntype = 'lora'\nrank = 16\n[optimizer]\n{optimizer}\n"
    )
    return import_config([file])


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("type = 'adamw_optimi'\nlr = 1e-4\neps = 1e-8", {"learning_rate": 1e-4}),
        ("type = 'AdamW8bit'\nlr = 1e-4\nbetas = [0.9, 0.95]", {"learning_rate": 1e-4, "name": "AdamW 8-bit", "beta2": 0.95}),
        ("type = 'Prodigy'\nlr = 1\nd_coef = 0.5\neps = 1e-6", {"learning_rate": 1, "name": "Prodigy", "options": "d_coef=0.5 eps=1e-06"}),
        ("type = 'CAME'\nbetas = [0.9, 0.999, 0.99]", {"name": "CAME", "options": "betas=(0.9, 0.999, 0.99)"}),
        ("type = 'SOAP'\nprecondition_frequency = 5", {"name": "other", "other": "SOAP", "options": "precondition_frequency=5"}),
        ("type = 'Kron'", {"name": "other", "other": "Kron"}),
    ],
)
def test_optimizers_of_diffusion_pipe(tmp_path: Path, written: str, expected: dict[str, object]) -> None:
    result = imported(tmp_path, written)
    assert result.job.get("optimizer", {}) == expected
    assert not [line for line in result.lines if line.source.startswith("optimizer.") and line.kind == "unsupported"]
    TrainingJob.parse(result.job)


def test_what_is_not_here_is_told(tmp_path: Path) -> None:
    result = imported(tmp_path, "type = 'automagic'\nbetas = [0.9]\nkahan_sum = true")
    why = {line.source: line.why for line in result.lines if line.kind == "unsupported"}
    assert why["optimizer.type"] == "AdamW is used instead; check the learning rate"
    assert why["optimizer.betas"] == "an optimizer has two betas, or three" and "without it" in why["optimizer.kahan_sum"]
    assert "optimizer" not in result.job


def test_state_on_the_host_is_taken_over_where_training_takes_it(tmp_path: Path) -> None:
    offload = "type = 'offload'\nlr = 1e-4"
    result = imported(tmp_path, offload, "gradient_clipping = 0")
    assert result.job["optimizer"] == {"learning_rate": 1e-4, "offload_state": True, "max_grad_norm": 0}
    for top, setting in (
        ("", "optimizer.max_grad_norm"),
        ("gradient_clipping = 0\ngradient_accumulation_steps = 4", "schedule.accumulation"),
    ):
        result = imported(tmp_path, offload, top)
        (why,) = (line.why for line in result.lines if line.source == "optimizer.type" and line.kind == "unsupported")
        assert f"optimizer.offload_state and {setting} do not go together" in why and why.endswith(
            "optimizer.offload_state is false instead"
        )
        assert "offload_state" not in result.job["optimizer"] and not illegal(TrainingJob.parse(result.job))


def test_gradient_release_has_no_clipping_as_there(tmp_path: Path) -> None:
    result = imported(tmp_path, "type = 'adamw_optimi'\nlr = 1e-4\ngradient_release = true", "gradient_clipping = 0.5")
    lines = {line.source: line for line in result.lines}
    assert result.job["optimizer"] == {"learning_rate": 1e-4, "max_grad_norm": 0} and lines["gradient_clipping"].kind == "ignored"
    assert "those of a LoRA are small" in lines["optimizer.gradient_release"].why
    result = imported(tmp_path, "type = 'Kron'\ngradient_release = false", "gradient_clipping = 0.5")
    assert result.job["optimizer"] == {"name": "other", "other": "Kron", "max_grad_norm": 0.5}  # no argument of the class
