"""However a transformer is held and computed, a step gives what the plain one gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models.world import World, made_world
from tests.tiny import ALL
from trainer.compute import Compute
from trainer.events import EventLog, Silent
from trainer.memory.assembly import Assembly
from trainer.memory.choices import Choices
from trainer.step import train_step

LOG = EventLog(Silent())
CPU = torch.device("cpu")
PLAIN = Choices(checkpointing="off")


@pytest.fixture(scope="module", params=ALL, ids=str)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    return made_world(request.param, tmp_path_factory.mktemp("family"))


def grads(world: World, choices: Choices, scratch: Path | None = None, dropout: float = 0.0) -> list[torch.Tensor]:
    """Losses of two steps, and every gradient of the second."""
    job = world.job(adapter={"dropout": dropout}, schedule={"batch_size": 2}, memory={"gradient_checkpointing": "off"})
    state, objective, lora = world.training(job, start=0.05)
    assembly = Assembly(state.transformer, choices, CPU, LOG, scratch, random=dropout > 0)
    assembly.place()
    losses = [train_step(n, job, state, objective, Compute(job.compute), LOG).loss for n in (1, 2)]
    found = [torch.tensor(losses), *(p.grad.clone() for p in lora.parameters() if p.grad is not None)]
    assert len(found) == len(lora.parameters()) + 1
    assembly.undo()
    return found


def test_what_is_put_around_the_blocks_changes_rounding_at_most(world: World) -> None:
    job = world.job(schedule={"batch_size": 2}, memory={"gradient_checkpointing": "off"})
    state, objective, lora = world.training(job, start=0.05)
    losses = [train_step(n, job, state, objective, Compute(job.compute), LOG).loss for n in (1, 2)]
    plain = [torch.tensor(losses), *(p.grad for p in lora.parameters() if p.grad is not None)]
    for ours, theirs in zip(grads(world, PLAIN), plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-7)


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("checkpointing", ["off", "selective", "full", "offloaded"])
@pytest.mark.parametrize("offload", [0.0, 0.5, 1.0])
def test_equals_the_plain_step_bit_for_bit(world: World, checkpointing: Any, offload: float) -> None:
    if (checkpointing, offload) != ("off", 0.0):
        assert same(grads(world, PLAIN), grads(world, Choices(checkpointing=checkpointing, offload=offload)))


@pytest.mark.parametrize("checkpointing", ["selective", "full", "offloaded"])
def test_dropout_is_drawn_again(world: World, checkpointing: Any) -> None:
    plain = grads(world, PLAIN, dropout=0.3)
    assert same(plain, grads(world, Choices(checkpointing=checkpointing, offload=1.0), dropout=0.3))
    assert not same(plain, grads(world, PLAIN))


def test_swaps_from_a_file(world: World, tmp_path: Path) -> None:
    assert same(grads(world, PLAIN), grads(world, Choices(checkpointing="full", offload=1.0, on_disk=True), tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("checkpointing", ["off", "selective", "full", "offloaded"])
def test_compiles_without_breaks(world: World, checkpointing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced by dynamo and differentiated ahead of time; the code that inductor writes for it is another test's."""
    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda forward: compile(forward, backend="aot_eager", fullgraph=True))
    compiled = grads(world, Choices(checkpointing=checkpointing, offload=0.5, compile=True))
    for ours, plain in zip(compiled, grads(world, PLAIN), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-6)
