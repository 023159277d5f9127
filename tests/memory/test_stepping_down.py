"""A card whose memory runs out in the middle of a run, or a compiler that fails: it goes on one notch down, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from torch._dynamo.exc import TorchDynamoException

from tests.tiny.wan import write_tiny_wan
from tests.tiny_run import losses, settings, write_clips
from trainer import optim, optimizer_trial, sampling
from trainer.components import Components
from trainer.errors import UserError
from trainer.events import read_events
from trainer.memory import plan as plan_module
from trainer.memory.choices import Choices, Decoding, settled
from trainer.models.wan.family import Wan
from trainer.objectives.base import MicroBatch
from trainer.objectives.flow_matching import FlowMatching
from trainer.run import Places, RunResult, run
from trainer.samples import Samples
from trainer.training import Training


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_wan(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clips(tmp_path_factory.mktemp("clips"))


OUT = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nAnd more.")


def failing(what: Callable, times: list[int]) -> Callable:
    """`what`, but those of its calls (1 for the first) fail."""
    calls = [0]

    def call(*args: object) -> object:
        calls[0] += 1
        if calls[0] in times:
            raise OUT
        return what(*args)

    return call


def tensors(result: RunResult) -> list[torch.Tensor]:
    return list(load_file(result.lora).values())


def notices(result: RunResult) -> list[str]:
    return [str(e["text"]) for e in read_events(result.folder / "events.jsonl") if e["type"] == "notice" and "ran out" in str(e["text"])]


def test_a_step_is_done_again_with_less(model: Path, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(settings(model, clips), Places.under(tmp_path / "whole"))
    monkeypatch.setattr(FlowMatching, "loss", failing(FlowMatching.loss, [7, 10]))  # of steps 5 and 6, which have two batches and one
    short = run(settings(model, clips), Places.under(tmp_path / "short"))
    assert losses(short) == losses(whole) and all(map(torch.equal, tensors(short), tensors(whole)))
    first, second = notices(short)
    assert "Tried to allocate 2.00 GiB.); going on with checkpointing full, 25% of the blocks offloaded" in first
    assert "50% of the blocks" in second


def test_a_batch_is_split_before_blocks_go_to_the_host(model: Path, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = settings(model, clips, adapter={"dropout": 0.0}, schedule={"batch_size": 3})
    whole = run(job, Places.under(tmp_path / "whole"))
    sizes = []

    def runs_out(objective: FlowMatching, transformer: object, batch: MicroBatch, own: Callable = FlowMatching.loss) -> torch.Tensor:
        sizes.append(len(batch.examples))
        if sizes[-1] > 1:
            raise OUT
        return own(objective, transformer, batch)

    monkeypatch.setattr(FlowMatching, "loss", runs_out)
    short = run(job, Places.under(tmp_path / "short"))
    assert sizes == [3] + [1] * sum(sizes[1:])
    (notice,) = notices(short)
    assert notice.endswith("going on with checkpointing full, batches computed 1 at a time.")
    assert [tuple(step) for step in losses(short)] == [pytest.approx(step, rel=1e-4) for step in losses(whole)]
    for split, together in zip(tensors(short), tensors(whole), strict=True):
        torch.testing.assert_close(split, together, rtol=1e-2, atol=1e-5)


class CutShort(torch.optim.AdamW):
    """Fails in one of its steps, when some of the weights are changed already."""

    calls, fails_at, error = 0, 0, OUT

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        CutShort.calls += 1
        if CutShort.calls == CutShort.fails_at:
            for parameter in self.param_groups[0]["params"][:3]:
                parameter.add_(1)
            raise CutShort.error
        super().step()


@pytest.fixture
def cut_short(monkeypatch: pytest.MonkeyPatch) -> type[CutShort]:
    monkeypatch.setattr(optim, "optimizer_class", lambda *_: CutShort)
    monkeypatch.setattr(CutShort, "error", OUT)
    monkeypatch.setattr(CutShort, "calls", 0)
    monkeypatch.setattr(CutShort, "fails_at", 0)
    return CutShort


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("step", "back"), [(1, 0), (2, 0), (3, 2), (6, 4)])
def test_an_update_that_is_cut_short_is_taken_back(
    model: Path, clips: Path, tmp_path: Path, cut_short: type[CutShort], step: int, back: int, precision: str
) -> None:  # fmt: skip
    job = settings(model, clips, adapter={"precision": precision})
    whole = run(job, Places.under(tmp_path / "whole"))
    cut_short.calls, cut_short.fails_at = 0, step
    short = run(job, Places.under(tmp_path / "short"))
    assert cut_short.calls == 6 + step - back
    assert losses(short) == losses(whole) and all(map(torch.equal, tensors(short), tensors(whole)))
    assert [file.read_bytes() for file in short.samples] == [file.read_bytes() for file in whole.samples]
    (notice,) = notices(short)
    assert "going on with checkpointing full, 25% of the blocks offloaded" in notice
    told = [e["text"] for e in read_events(short.folder / "events.jsonl") if e["type"] == "notice" and "half changed" in str(e["text"])]
    lost = f"The weights of step {step} were half changed: training goes on from the checkpoint of step {back}."
    assert told == ([lost] if step - 1 > back else [])


def test_half_changed_weights_are_not_saved(
    model: Path, clips: Path, tmp_path: Path, cut_short: type[CutShort], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    whole = run(settings(model, clips), Places.under(tmp_path / "whole"))
    cut_short.calls, cut_short.fails_at = 0, 4
    monkeypatch.setattr(cut_short, "error", RuntimeError("the driver was shut down"))
    with pytest.raises(RuntimeError, match="shut down"):
        run(settings(model, clips), Places.under(tmp_path))
    short = run(settings(model, clips), Places.under(tmp_path))
    assert losses(short) == losses(whole) and all(map(torch.equal, tensors(short), tensors(whole)))


def test_a_sample_is_drawn_again_with_less(model: Path, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Samples, "draw", failing(Samples.draw, [2]))
    result = run(settings(model, clips), Places.under(tmp_path))
    assert len(result.losses) == 6 and len(list(result.folder.glob("samples/*/*.mp4"))) == 3 and len(notices(result)) == 1


def test_a_sample_that_cannot_be_decoded_beside_the_transformer_is_decoded_without(
    model: Path, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    job = settings(model, clips, memory={"layer_offload_fraction": 0.5})
    whole = run(job, Places.under(tmp_path / "whole"))
    denoised = []
    monkeypatch.setattr(sampling, "denoise", lambda *given, own=sampling.denoise: (denoised.append(1), own(*given))[1])
    monkeypatch.setattr(Wan, "decode_video", failing(Wan.decode_video, [2]))
    short = run(job, Places.under(tmp_path / "short"))
    assert losses(short) == losses(whole) and all(map(torch.equal, tensors(short), tensors(whole)))
    assert [file.read_bytes() for file in short.samples] == [file.read_bytes() for file in whole.samples]
    (notice,) = notices(short)
    assert "from now on with the transformer on the host" in notice
    assert len(denoised) == 3, "nothing is drawn again"


@pytest.mark.parametrize("name", ["AdamW", "Schedule-free AdamW"])
def test_a_planned_parking_changes_no_run(
    model: Path, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:  # fmt: skip
    if name != "AdamW":
        pytest.importorskip("pytorch_optimizer")
    job = settings(model, clips, optimizer={"name": name, "schedule": "constant"}, memory={"layer_offload_fraction": 0.5})
    whole = run(job, Places.under(tmp_path / "whole"))
    plan = SimpleNamespace(choices=settled(job.memory, job.compute), decoding=Decoding(parked=True), step_seconds=0.0)
    monkeypatch.setattr(plan_module, "told_plan", lambda *_: plan)
    parked = []
    monkeypatch.setattr(
        Components, "without_transformers", lambda own, real=Components.without_transformers: (parked.append(1), real(own))[1]
    )
    result = run(job, Places.under(tmp_path / "parked"))
    assert len(parked) == 3
    assert losses(result) == losses(whole) and all(map(torch.equal, tensors(result), tensors(whole)))
    assert [file.read_bytes() for file in result.samples] == [file.read_bytes() for file in whole.samples]


def test_the_last_notch_is_followed_by_an_error_and_progress_is_kept(
    model: Path, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(FlowMatching, "loss", failing(FlowMatching.loss, list(range(7, 99))))
        with pytest.raises(UserError, match=r"step 5: does not fit .*Tried to allocate.*nf4"):
            run(settings(model, clips), Places.under(tmp_path))
    assert len(run(settings(model, clips), Places.under(tmp_path)).losses) == 6


def test_a_compiler_that_fails_is_done_without(model: Path, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise TorchDynamoException("Failed to find C compiler.\nAnd more.")

    monkeypatch.setattr(torch, "compile", lambda _: fails)
    plain = run(settings(model, clips), Places.under(tmp_path / "plain"))
    result = run(settings(model, clips, compute={"compile": "on"}), Places.under(tmp_path / "compiled"))
    told = [str(e["text"]) for e in read_events(result.folder / "events.jsonl") if e["type"] == "notice" and "Compiling" in str(e["text"])]
    assert told == ["Compiling failed (Failed to find C compiler.). The model is trained without compiling: this takes longer, and nothing "
                    "else changes."]  # fmt: skip
    assert losses(result) == losses(plain)


def test_notches() -> None:
    assert Choices(checkpointing="selective", lighter=0.4).smaller() == Choices(checkpointing="selective", lighter=0.15)
    assert Choices(checkpointing="selective", lighter=0.15).smaller() == Choices(checkpointing="selective")
    choices, seen = Choices(checkpointing="off"), []
    while choices is not None:
        seen.append((choices.checkpointing, choices.offload))
        choices = choices.smaller()
    assert seen == [
        ("off", 0), ("light", 0), ("selective", 0), ("full", 0), ("full", 0.25), ("full", 0.5), ("full", 0.75), ("full", 1.0),
        ("offloaded", 1.0),
    ]  # fmt: skip


def test_notches_of_a_batch() -> None:
    """It is halved once all of its blocks are computed again, and before any of their weights leaves the card."""
    choices, seen = Choices(checkpointing="selective"), []
    while choices is not None and not choices.offload:
        seen.append((choices.checkpointing, choices.at_once))
        choices = choices.smaller(choices.at_once or 5)
    assert seen == [("selective", 0), ("full", 0), ("full", 2), ("full", 1)]
    assert Choices(at_once=8).smaller(4) == Choices(at_once=2)
    assert Choices(at_once=1).smaller(1) == Choices(at_once=1, offload=0.25)
    assert Choices().smaller() == Choices(offload=0.25)


def test_what_cannot_be_saved_is_saved_with_less(model: Path, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(settings(model, clips), Places.under(tmp_path / "whole"))
    monkeypatch.setattr(Training, "checkpoint", failing(Training.checkpoint, [1]))
    short = run(settings(model, clips), Places.under(tmp_path / "short"))
    assert losses(short) == losses(whole) and all(map(torch.equal, tensors(short), tensors(whole))) and len(notices(short)) == 1


@pytest.mark.parametrize("call", [1, 3])
def test_averaging_that_is_cut_short_changes_nothing(
    model: Path, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:  # fmt: skip
    """Half-averaged weights were saved as those that are trained."""
    kind = pytest.importorskip("pytorch_optimizer").ScheduleFreeAdamW
    job = settings(model, clips, optimizer={"name": "Schedule-free AdamW", "schedule": "constant"})
    whole, real, calls = run(job, Places.under(tmp_path / "whole")), kind.eval, [0]

    def cut_short(own: torch.optim.Optimizer) -> None:
        calls[0] += 1
        if calls[0] == call:
            with torch.no_grad():
                own.param_groups[0]["params"][0].add_(1)
            raise OUT
        real(own)

    monkeypatch.setattr(kind, "eval", cut_short)
    monkeypatch.setattr(optimizer_trial, "check_optimizer", lambda _: [])  # which tries it on weights of its own
    short = run(job, Places.under(tmp_path / "short"))
    assert losses(short) == losses(whole) and all(map(torch.equal, tensors(short), tensors(whole))) and len(notices(short)) == 1
