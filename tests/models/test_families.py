"""Every family and variant trains: from clips through its own encoders to a falling loss, with right gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from tests.data.footage import scene
from tests.models.host_reads import host_reads
from tests.models.world import World, made_world
from tests.tiny import ALL
from tests.tiny_run import train_step
from trainer import draws
from trainer.compute import Compute
from trainer.events import EventLog, Silent
from trainer.experts import expert_at, expert_for, trained_experts
from trainer.memory.examples import shapes_at
from trainer.models.base import ModelInputs
from trainer.objectives.flow_matching import FlowMatching
from trainer.step import TrainState

SIGMAS, STEPS, FALL = (0.2, 0.4, 0.6, 0.8), 60, 0.8


@pytest.fixture(scope="module", params=ALL, ids=str)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    return made_world(request.param, tmp_path_factory.mktemp("family"))


def fixed_losses(world: World, state: TrainState, objective: FlowMatching) -> float:
    """Mean loss of the first example at fixed noise levels and a fixed noise."""
    batch, losses = next(iter(objective.collect(1))), []
    expert = trained_experts(world.family.spec, "all")[0]
    batch.noise = draws.normal(tuple(batch.noise.shape), "fixed")
    with torch.no_grad():
        for sigma in SIGMAS:
            batch.sigma = torch.full_like(batch.sigma, expert.low + sigma * (expert.high - expert.low))
            losses.append(objective.loss(state.transformer, batch).mean().item())
    return sum(losses) / len(losses)


def test_step_zero_is_the_base_bit_for_bit(world: World) -> None:
    job = world.job(memory={"gradient_checkpointing": "off"})
    state, objective, _lora = world.training(job)
    batch = next(iter(objective.collect(1)))
    with torch.no_grad():
        attached = objective.loss(state.transformer, batch)
        base = world.family.load_transformer(torch.float32, trained_experts(world.family.spec, "all")[0].part)
        assert torch.equal(attached, objective.loss(base, batch))


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_trains_at_any_batch_size_over_mixed_lengths(world: World, batch_size: int, accumulation: int) -> None:
    job = world.job(schedule={"batch_size": batch_size, "accumulation": accumulation})
    state, objective, lora = world.training(job)
    before = [parameter.detach().clone() for parameter in lora.parameters()[1::2]]
    steps = objective.sampler.steps_per_epoch
    results = [train_step(n, job, state, objective, Compute(job.compute), EventLog(Silent())) for n in range(1, steps + 1)]
    seen = {example.item.size for n in range(1, steps + 1) for example in objective.sampler.plan(n).examples}
    assert len(seen) == len(set(world.tiny.sizes))
    assert all(torch.isfinite(torch.tensor([result.loss, result.grad_norm])).all() and result.loss > 0 for result in results)
    assert all(not torch.equal(old, new) for old, new in zip(before, lora.parameters()[1::2], strict=True))


def test_a_batch_in_pieces_is_the_batch(world: World) -> None:
    job = world.job(schedule={"batch_size": 3}, adapter={"dropout": 0.0}, captions={"dropout": 0.5})
    state, objective, _ = world.training(job, start=0.05)
    batches = (batch for step in range(1, objective.sampler.steps_per_epoch + 1) for batch in objective.collect(step))
    batch = next(batch for batch in batches if len(batch.examples) == 3)
    pieces = list(batch.pieces(2))
    assert [len(piece.examples) for piece in pieces] == [2, 1] and [e for piece in pieces for e in piece.examples] == list(batch.examples)
    assert [len(tensor) for piece in pieces for tensor in piece.tensors] == [size for size in (2, 1) for _ in batch.tensors]
    with torch.no_grad():
        whole, split = objective.loss(state.transformer, batch), [objective.loss(state.transformer, piece) for piece in pieces]
    torch.testing.assert_close(torch.cat(split), whole, rtol=1e-4, atol=1e-6)


def test_loss_falls_on_one_clip(world: World) -> None:
    job = world.job(
        adapter={"rank": 16}, optimizer={"learning_rate": world.tiny.learning_rate, "warmup": 5}, schedule={"batch_size": 1},
        memory={"gradient_checkpointing": "off"}, captions={"dropout": 0.0}, model={"expert": world.family.spec.experts[0].name or "all"},
    )  # fmt: skip
    state, objective, _ = world.training(job, world.one)
    before = fixed_losses(world, state, objective)
    for step in range(1, STEPS + 1):
        train_step(step, job, state, objective, Compute(job.compute), EventLog(Silent()))
    after = fixed_losses(world, state, objective)
    assert after <= FALL * before, (before, after)


def test_gradient_is_the_derivative_and_reaches_every_layer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In training mode with gradient checkpointing, along a random direction over all layers, in float64, by a central difference."""
    to_float32 = torch.Tensor.float  # models raise half precision by it; here it would round
    monkeypatch.setattr(torch.Tensor, "float", lambda tensor: tensor if tensor.dtype == torch.float64 else to_float32(tensor))
    job = world.job(schedule={"batch_size": 2})
    state, objective, lora = world.training(job, dtype=torch.float64, start=0.05)
    state.transformer.train()
    parameters = lora.parameters()
    batch = next(iter(objective.collect(1)))
    batch.noise, batch.sigma = batch.noise.double(), batch.sigma.double()
    batch.text, batch.encoded = (
        {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in part.items()}
        for part in (batch.text, batch.encoded)
    )
    generator = torch.Generator().manual_seed(4)
    direction = [torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in parameters]

    def loss() -> torch.Tensor:
        return (objective.loss(state.transformer, batch) * batch.weights).sum()

    loss().backward()
    idle = [
        name
        for name, layer in lora.layers.items()
        if layer.lora_B["default"].weight.grad is None or not layer.lora_B["default"].weight.grad.any()
    ]
    assert idle == []
    slope = sum(float((p.grad * d).sum()) for p, d in zip(parameters, direction, strict=True))
    step, values = 1e-4, []
    for sign in (1, -2):
        for parameter, d in zip(parameters, direction, strict=True):
            parameter.data += sign * step * d
        with torch.no_grad():
            values.append(float(loss()))
    assert slope == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-3)


def test_velocity_equals_the_pipelines(world: World) -> None:
    """At the very x, noise level and prompt that the family's diffusers pipeline calls its transformer with."""
    family, prompt, size = world.family, "a red circle on a table", world.tiny.sizes[1]
    frames = {name: scene(7 * place, *size[1:]) for place, name in enumerate(family.spec.conditions)}
    pictures = {name: Image.fromarray(frame) for name, frame in frames.items()}
    points = world.tiny.pipeline_points(Path(family.files.name), prompt, size, pictures)
    assert len(points) >= 2 and len({point.sigma for point in points}) == len(points)
    tensors = {name: torch.from_numpy(frame) for name, frame in frames.items()}
    seen = (tensors["first_frame"],) if family.spec.text_sees_image else ()
    text = family.text_inputs([family.encode_text(family.load_text_encoder(torch.float32), prompt, *seen)])
    given = {}
    if family.spec.conditions:
        seer = family.load_image_encoder(torch.float32) if family.spec.image_encoder else None
        given = family.encode_conditions(family.load_vae(), seer, tensors, size)
    if points[0].clip is not None:
        given = family.section({"latents": points[0].clip, **given}, points[0].section)
    given = {name: tensor[None] for name, tensor in given.items()}
    if family.spec.guidance_input is not None:
        given["guidance"] = torch.tensor([family.spec.guidance])
    for point in points:
        part = expert_for(point.sigma, family.spec.experts).part
        sigma = torch.tensor([point.sigma])
        with torch.no_grad():
            x = family.conditioned(point.x.float(), given)
            inputs = ModelInputs(family.denoiser_inputs(x, sigma, text, given), x, sigma, target=x)
            ours = family.predict(family.load_transformer(torch.float32, part), inputs)
        mask = family.loss_mask(x, given)
        ours, theirs = (part if mask is None else part * mask for part in (ours, point.velocity.float()))
        assert (ours - theirs).norm() / theirs.norm() < 1e-4, point.sigma


# What diffusers reads by itself: HiDream's tokens go to the experts that are drawn for them, and its pictures' sizes lie on the
# device; HunyuanVideo-1.5 looks for a picture of zeros and sorts the tokens of the texts by their masks.
READ_BY_DIFFUSERS = {
    "hidream": {"transformer_hidream_image.py:forward", "transformer_hidream_image.py:unpatchify", "backward"},
    "hunyuan_video_15": {"transformer_hunyuan_video15.py:forward", "backward"},
}


@pytest.mark.parametrize("checkpointing", ["off", "full"])
def test_a_step_reads_the_device_once(world: World, checkpointing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no numbers are sent to it but by the micro-batches; the second step, when constants lie there."""
    job = world.job(schedule={"batch_size": 2, "accumulation": 2}, memory={"gradient_checkpointing": checkpointing})
    state, objective, _ = world.training(job)
    monkeypatch.setattr(state.optimizer, "step", lambda: None)
    train_step(1, job, state, objective, Compute(job.compute), EventLog(Silent()))
    batches = list(objective.collect(2))
    monkeypatch.setattr(objective, "collect", lambda step: iter(batches))
    with host_reads() as reads:
        train_step(2, job, state, objective, Compute(job.compute), EventLog(Silent()))
    known = READ_BY_DIFFUSERS.get(world.family.spec.family, set())
    assert [place for place in reads.read if place not in known] == ["step.py:gradients"]
    assert {place for place in reads.uploaded if place != "transformer_hidream_image.py:patchify"} == set()


def test_turns_of_experts() -> None:
    assert [expert_at(step, "ab", 2) for step in range(1, 7)] == ["a", "a", "b", "b", "a", "a"]  # type: ignore[arg-type]


def test_a_plan_knows_what_is_encoded_before_it_is(world: World) -> None:
    item = world.data.items[0]
    encoding, text = world.data.latents(item), world.data.text(item.captions[0], world.data.picture(item))
    planned = shapes_at(world.family, item.size.shape)
    assert planned.encoding.keys() == encoding.keys()
    assert planned.encoding["latents"] == tuple(encoding["latents"].shape)
    assert {name: shape[-1] for name, shape in planned.text.items()} == {name: tensor.shape[-1] for name, tensor in text.items()}
