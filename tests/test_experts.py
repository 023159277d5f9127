"""A model of two experts from settings to two LoRA files: turns, exact resume of both, one alone, and going on from a pair."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from tests.data.footage import scene
from tests.data.synthetic import write_clip
from tests.tiny.wan import write_tiny_a14b_i2v, write_tiny_a14b_t2v
from tests.tiny_run import Cancels, losses, settings
from trainer.adapters.file import load_lora
from trainer.components import Components
from trainer.compute import Compute
from trainer.errors import Interrupted, UserError
from trainer.events import EventLog, Silent, read_events
from trainer.experts import expert_for, file_of
from trainer.job import ComputeSettings, ObjectiveSettings
from trainer.memory.assembly import Assembly
from trainer.models import open_model
from trainer.models.base import Expert
from trainer.objectives.flow_matching import FlowMatching
from trainer.objectives.noise_levels import draw_sigma_within
from trainer.optim import follow_parameters
from trainer.run import Places, run
from trainer.sampling import SampleRequest, VideoSampler
from trainer.training import Training

TURNS = ["high", "high", "low", "low", "high", "high", "low", "low"]
EXPERTS: dict[str, Any] = {
    "schedule": {"steps": 8, "switch_every": 2, "seed": 7}, "output": {"name": "run", "save_every": 4},
    "samples": {"every": 8, "steps": 2, "prompts": [{"prompt": "a clip"}]},
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_a14b_t2v(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clips")
    for number in range(3):
        write_clip(folder / f"{number}.mp4", [scene(n + 9 * number, 32, 32) for n in range(9)], rate=16)
        (folder / f"{number}.txt").write_text(f"clip number {number}", encoding="utf-8")
    return folder


def job(folder: Path, clips: Path, **parts: Any) -> Any:
    return settings(folder, clips, 8, **{**EXPERTS, **parts})


class Watched:
    """What each step of a run trained: the expert that was told, whose LoRA changed, and the noise levels that were drawn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.changed: list[set[str]] = []
        self.sigmas: list[list[float]] = []
        step, loss = Training.one_step, FlowMatching.loss

        def one_step(training: Training) -> None:
            before = {name: [p.detach().clone() for p in lora.parameters()] for name, lora in training.loras.items()}
            self.sigmas.append([])
            step(training)
            now = {name: lora.parameters() for name, lora in training.loras.items()}
            self.changed.append({name for name in now if not all(map(torch.equal, before[name], now[name]))})

        def watched_loss(objective: FlowMatching, transformer: Any, batch: Any) -> Any:
            self.sigmas[-1] += batch.sigma.tolist()
            return loss(objective, transformer, batch)

        monkeypatch.setattr(Training, "one_step", one_step)
        monkeypatch.setattr(FlowMatching, "loss", watched_loss)


@pytest.fixture(scope="module")
def whole(model: Path, clips: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        watched = Watched(patch)
        return run(job(model, clips), Places.under(tmp_path_factory.mktemp("whole"))), watched


def test_experts_take_turns_within_their_noise_levels(whole: Any) -> None:
    result, watched = whole
    assert watched.changed == [{name} for name in TURNS]
    assert [event["expert"] for event in read_events(result.folder / "events.jsonl") if event["type"] == "step"] == TURNS
    for name, sigmas in zip(TURNS, watched.sigmas, strict=True):
        assert sigmas and all(sigma >= 0.875 if name == "high" else 0 < sigma < 0.875 for sigma in sigmas)


def test_each_expert_has_a_file_of_its_own(model: Path, whole: Any) -> None:
    result, _ = whole
    assert {name: file.name for name, file in result.loras.items()} == {
        "high": "run-high-step-000008.safetensors", "low": "run-low-step-000008.safetensors",
    }  # fmt: skip
    high, low = (load_lora(file, open_model(model)) for file in result.loras.values())
    assert any(not torch.equal(high.pairs[name].up, low.pairs[name].up) for name in high.pairs)
    for name, file in result.loras.items():
        with safe_open(file, "pt") as opened:
            assert opened.metadata()["ss_base_model_version"].endswith(name)


@pytest.mark.parametrize("steps", [3, 6])
def test_resume_is_exact_for_both(model: Path, clips: Path, tmp_path: Path, whole: Any, steps: int) -> None:
    cancels: Any = Cancels("step", steps)
    with pytest.raises(Interrupted):
        run(job(model, clips), Places.under(tmp_path), cancels)
    resumed = run(job(model, clips), Places.under(tmp_path))
    assert losses(resumed) == losses(whole[0])
    for name, file in whole[0].loras.items():
        ours, theirs = (load_lora(lora, open_model(model)).pairs for lora in (resumed.loras[name], file))
        assert ours.keys() == theirs.keys() and all(ours[layer].equals(theirs[layer]) for layer in ours)


@pytest.mark.parametrize("name", ["high", "low"])
def test_one_expert_alone(model: Path, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    watched = Watched(monkeypatch)
    result = run(job(model, clips, model={"expert": name}), Places.under(tmp_path))
    assert result.loras.keys() == {name} and watched.changed == [{name}] * 8
    assert len(result.samples) == 1  # drawn with both


def test_samples_use_both_experts_and_both_loras(model: Path, whole: Any) -> None:
    request, loras = SampleRequest("a clip", 5, 32, 32, steps=4), whole[0].loras
    drawn = [
        VideoSampler(model, ComputeSettings(device="cpu"), chosen, 20.0)(request)
        for chosen in ({}, {"high": loras["high"]}, {"low": loras["low"]}, loras)
    ]
    assert all(not torch.equal(drawn[a], drawn[b]) for a in range(4) for b in range(a))


def test_a_run_goes_on_from_a_pair_of_files(model: Path, clips: Path, tmp_path: Path, whole: Any) -> None:
    """Named by one of them: with steps that change next to nothing, both hold what their files hold."""
    parts = {"adapter": {"continue_from": str(whole[0].loras["low"])}, "optimizer": {"learning_rate": 1e-30}, "samples": {"every": 0}}
    result = run(job(model, clips, **parts), Places.under(tmp_path))
    for own, file in whole[0].loras.items():
        ours, theirs = (load_lora(lora, open_model(model)).pairs for lora in (result.loras[own], file))
        assert all(torch.allclose(ours[layer].up, theirs[layer].up) for layer in theirs)


def test_a_pair_that_is_not_complete_is_named_before_anything_is_loaded(model: Path, clips: Path, tmp_path: Path, whole: Any) -> None:
    alone = shutil.copy(whole[0].loras["high"], tmp_path / "mine-high.safetensors")
    nameless = shutil.copy(whole[0].loras["high"], tmp_path / "mine.safetensors")
    for file, said in (
        (alone, "mine-low.safetensors', of the expert for low noise, is not there"),
        (nameless, "does not say which expert"),
    ):
        with pytest.raises(UserError, match=said):
            run(job(model, clips, adapter={"continue_from": str(file)}), Places.under(tmp_path / "out"))
    short = job(model, clips, schedule={"steps": 2, "switch_every": 2})
    with pytest.raises(UserError, match="2 steps end before it is the turn of the expert for low noise"):
        run(short, Places.under(tmp_path / "out"))


def test_names_of_pairs(model: Path, tmp_path: Path) -> None:
    spec = open_model(model).spec
    high, low = spec.experts
    pairs = [
        ("low-light-high-step-000500", "low-light-low-step-000500"),
        ("Wan22_HIGH_v2", "Wan22_LOW_v2"),
        ("slow_HighNoise", "slow_LowNoise"),
        ("flow_highnoise_r16", "flow_lownoise_r16"),
    ]
    for first, second in pairs:
        files = [tmp_path / f"{name}.safetensors" for name in (first, second)]
        for file in files:
            file.touch()
        for given in files:
            assert [file_of(expert, given, spec, alone=False) for expert in (high, low)] == files
    assert file_of(high, tmp_path / "slow.safetensors", spec, alone=True) == tmp_path / "slow.safetensors"
    one = replace(spec, experts=(Expert(""),))
    assert file_of(one.experts[0], tmp_path / "low.safetensors", one, alone=False) == tmp_path / "low.safetensors"


def test_a_noise_level_belongs_to_one_expert() -> None:
    experts = (Expert("high", "transformer", 0.9, 1.0), Expert("low", "transformer_2", 0.0, 0.9))
    assert [expert_for(sigma, experts).name for sigma in (1.0, torch.tensor(0.9).item(), 0.8999, 1e-6)] == ["high", "high", "low", "low"]
    flat = ObjectiveSettings(timesteps="uniform")
    for expert in experts:
        drawn = [draw_sigma_within(expert.low, expert.high, flat, 1.0, lambda time: time, number).item() for number in range(200)]
        assert all(expert_for(sigma, experts) is expert for sigma in drawn)
        assert min(drawn) < expert.low + 0.03 and max(drawn) > expert.high - 0.03
    narrow = draw_sigma_within(0.5, 0.5 + 1e-9, flat, 1.0, lambda time: time, "nothing is drawn there")
    assert narrow.item() == pytest.approx(0.5)


def test_the_idle_expert_is_off_the_device(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each transformer was last told to lie."""
    places: dict[int, str] = {}
    for method, place in (("place", "the card"), ("park", "cpu")):
        monkeypatch.setattr(Assembly, method, lambda self, place=place: places.update({id(self.transformer): place}))
    family = open_model(model)
    components = Components(family, Compute(ComputeSettings(device="cpu", dtype="fp32")), EventLog(Silent()))
    high, low = family.spec.experts
    first = components.transformer(high)
    assert places[id(first)] == "the card"
    second = components.transformer(low)
    assert (places[id(first)], places[id(second)]) == ("cpu", "the card")
    assert components.transformer(high) is first
    assert (places[id(first)], places[id(second)]) == ("the card", "cpu")


def test_the_optimizers_memory_follows_its_parameters() -> None:
    here, there = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2, device="meta"))
    for fused in (False, True):
        optimizer = torch.optim.AdamW([here, there])
        optimizer.param_groups[0]["fused"] = fused
        for parameter in (here, there):
            optimizer.state[parameter] = {"step": torch.tensor(3.0), "exp_avg": torch.ones(2), "exp_avg_sq": torch.ones(2)}
        follow_parameters(optimizer)
        places = {name: value.device.type for name, value in optimizer.state[there].items()}
        assert places == {"step": "meta" if fused else "cpu", "exp_avg": "meta", "exp_avg_sq": "meta"}
        assert all(value.device.type == "cpu" for value in optimizer.state[here].values())


def test_image_to_video_of_two_experts_draws_from_its_clips_without_prompts(clips: Path, tmp_path: Path) -> None:
    parts = {**EXPERTS, "samples": {"every": 8, "steps": 2, "prompts": []}}
    result = run(settings(write_tiny_a14b_i2v(tmp_path / "model"), clips, 8, **parts), Places.under(tmp_path))
    assert len(result.samples) == 2 and result.loras.keys() == {"high", "low"}
