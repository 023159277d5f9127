"""Optimizers in whole runs: interrupted ones end alike, LoRA files hold what the optimizer is for, refusals come before loading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from tests.data.footage import scene
from tests.data.synthetic import write_clip
from tests.test_optimizers import needs
from tests.test_run import Cancels, losses, settings
from tests.tiny.wan import write_tiny_a14b_t2v, write_tiny_wan
from trainer.adapters.file import load_lora
from trainer.adapters.lora import Lora
from trainer.errors import Interrupted, UserError
from trainer.events import EventLog, Silent, read_events
from trainer.job import AdapterSettings
from trainer.models import open_model
from trainer.run import Places, run
from trainer.runfolder import RunFolder

SAMPLED = {"every": 2, "steps": 1, "prompts": [{"prompt": "a clip"}]}
CHOICES: dict[str, dict[str, Any]] = {
    "AdamW": {"optimizer": {"lora_plus_ratio": 4}, "adapter": {"precision": "bf16"}},
    "Schedule-free AdamW": {"optimizer": {"name": "Schedule-free AdamW", "learning_rate": 5e-3}},
    "Prodigy": {"optimizer": {"name": "Prodigy", "learning_rate": 1, "options": "d0=1e-3"}, "adapter": {"precision": "bf16"}},
}


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clips")
    write_clip(folder / "a.mp4", [scene(n, 32, 32) for n in range(9)], rate=16)
    (folder / "a.txt").write_text("a clip", encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", CHOICES)
def test_an_interrupted_run_of_two_experts_ends_as_a_whole_one(name: str, clips: Path, tmp_path: Path) -> None:
    needs(name)
    model = write_tiny_a14b_t2v(tmp_path / "model")
    parts = {"samples": SAMPLED, "schedule": {"steps": 6, "switch_every": 2, "accumulation": 1, "seed": 7}, **CHOICES[name]}
    job = settings(model, clips, 6, **parts)
    whole = run(job, Places.under(tmp_path / "whole"))
    with pytest.raises(Interrupted):
        run(job, Places.under(tmp_path / "cut"), Cancels("step", 3))
    resumed = run(job, Places.under(tmp_path / "cut"))
    assert losses(resumed) == losses(whole)
    assert any(event["type"] == "resumed" and event["step"] == 3 for event in read_events(resumed.folder / "events.jsonl"))
    for expert, file in whole.loras.items():
        a, b = (load_lora(lora, open_model(model)).pairs for lora in (file, resumed.loras[expert]))
        assert all(torch.equal(a[layer].up, b[layer].up) and torch.equal(a[layer].down, b[layer].down) for layer in a)
        with safe_open(file, "pt") as opened:
            assert {opened.get_tensor(key).dtype for key in opened.keys() if "lora" in key} == {torch.float32}  # noqa: SIM118


def test_lora_files_hold_the_average_and_checkpoints_what_is_trained(clips: Path, tmp_path: Path) -> None:
    needs("Schedule-free AdamW")
    model = write_tiny_wan(tmp_path / "model")
    result = run(settings(model, clips, 6, samples=SAMPLED, **CHOICES["Schedule-free AdamW"]), Places.under(tmp_path))
    folder = RunFolder.open(result.folder)
    assert folder is not None
    newest = folder.newest_checkpoint(EventLog(Silent()))
    assert newest is not None
    _, weights, state = newest
    exported = load_lora(result.lora, open_model(model))
    family = open_model(model)
    layers = Lora.attach(family.load_transformer(torch.float32), family.spec, AdapterSettings(), seed=0).layers  # in the optimizer's order
    (trained,) = weights.values()
    order = [(name, trained.pairs[name]) for name in layers]
    for number, (name, pair) in enumerate(order):
        for place, own, shown in ((0, pair.down, exported.pairs[name].down), (1, pair.up, exported.pairs[name].up)):
            z = state["optimizer"]["state"][2 * number + place]["z"]
            assert torch.allclose(shown, (own - 0.1 * z) / 0.9, atol=1e-6)
    assert any(not torch.allclose(pair.up, exported.pairs[name].up, atol=1e-5) for name, pair in order)


def test_a_job_is_refused_with_all_that_is_wrong(clips: Path, tmp_path: Path) -> None:
    model = write_tiny_wan(tmp_path / "model")
    wrong = {"optimizer": {"offload_state": True, "options": "esp=1", "name": "AdamW"}, "compute": {"dtype": "fp16"}}
    with pytest.raises(UserError) as caught:
        run(settings(model, clips, 6, **wrong), Places.under(tmp_path))
    told = [problem.where.rpartition(", ")[2] for problem in caught.value.problems]
    assert told == ["optimizer.max_grad_norm", "schedule.accumulation", "compute.dtype", "optimizer.options"]
    assert not (tmp_path / "video_trainer/run").exists()
