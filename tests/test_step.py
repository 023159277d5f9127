"""One optimizer step: batching cannot change it, and its gradient is the loss's derivative."""

from pathlib import Path

import pytest
import torch

from tests.tiny.wan import write_tiny_wan
from tests.tiny_run import train_step
from trainer import draws
from trainer.adapters.lora import Lora
from trainer.compute import Compute
from trainer.data.dataset import Item
from trainer.data.sampler import Sampler
from trainer.errors import Interrupted, UserError
from trainer.events import EventLog, Silent
from trainer.job import AdapterSettings, Bucket, ComputeSettings, TrainingJob, WindowSettings
from trainer.memory.assembly import Assembly
from trainer.memory.choices import settled
from trainer.models import open_model
from trainer.objectives.flow_matching import FlowMatching
from trainer.optim import learning_rate, make_optimizer
from trainer.step import TrainState


class FakeDataset:
    """Random latents by item and window, random texts by caption."""

    def __init__(self, sizes, windows=None):
        self.windows = windows
        self.items = [Item(f"clip{i}", Path(f"{i}.mp4"), (f"caption {i}",), size, 4, 1, str(i)) for i, size in enumerate(sizes)]

    def latents(self, item, window=0):
        frames = (item.size.frames - 1) // 4 + 1
        return {"latents": draws.normal((16, frames, item.size.height // 8, item.size.width // 8), "latent", item.key, window)}

    def picture(self, item, window=0):
        return ""

    def text(self, caption, picture=""):
        return {"text": draws.normal((1 + len(caption), 16), "text", caption)}


SMALL, LONG = Bucket(frames=5, height=32, width=32), Bucket(frames=9, height=32, width=16)


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    return open_model(write_tiny_wan(tmp_path_factory.mktemp("tiny")))


def setup(family, job, sizes=(SMALL,) * 8, windows=None, dtype=torch.float32, start=0.05):
    compute = Compute(job.compute)
    transformer = family.load_transformer(compute.dtype).to(dtype if compute.dtype == torch.float32 else compute.dtype)
    lora = Lora.attach(transformer, family.spec, job.adapter, seed=0)
    choices, dropout = settled(job.memory, job.compute), job.adapter.dropout > 0
    Assembly(transformer, choices, compute.device, EventLog(Silent()), random=dropout)
    lora.train(True)
    if start:
        generator = torch.Generator().manual_seed(3)
        for parameter in lora.parameters():
            parameter.data.normal_(0, start, generator=generator)
    dataset = FakeDataset(sizes, windows)
    sampler = Sampler(dataset, job.schedule.batch_size, job.schedule.accumulation, 0)
    objective = FlowMatching(job, family, dataset, sampler, compute.device)
    optimizer = make_optimizer(lora.parameters(), job.optimizer)
    state = TrainState(transformer, lora.parameters(), optimizer, compute.scaler())
    return state, objective, compute, lora


def job(**parts):
    parts.setdefault("compute", {"device": "cpu"})
    return TrainingJob.parse(parts)


def steps(family, settings, count=2, **kwargs):
    state, objective, compute, lora = setup(family, settings, **kwargs)
    results = [train_step(n, settings, state, objective, compute, EventLog(Silent())) for n in range(1, count + 1)]
    return results, lora


@pytest.mark.parametrize("sizes", [(SMALL,) * 8, (SMALL,) * 5 + (LONG,) * 2], ids=["one size", "mixed sizes"])
@pytest.mark.parametrize(
    "windows", [None, WindowSettings(size=5), WindowSettings(size=5, grouping="independent")], ids=["whole", "one step", "independent"]
)
def test_accumulation_equals_one_batch(family, sizes, windows):
    one = job(schedule={"batch_size": 4})
    four = job(schedule={"batch_size": 1, "accumulation": 4})
    (a, x), (b, y) = (steps(family, settings, sizes=sizes, windows=windows) for settings in (one, four))
    assert [r.loss for r in a] == pytest.approx([r.loss for r in b], rel=1e-5)
    assert [r.grad_norm for r in a] == pytest.approx([r.grad_norm for r in b], rel=1e-5)
    for p, q in zip(x.parameters(), y.parameters(), strict=True):
        assert (p - q).norm() <= 1e-5 * p.norm()


def test_windows_of_a_clip_are_averaged(family):
    settings = job(schedule={"batch_size": 2})
    _, objective, _, _ = setup(family, settings, windows=WindowSettings(size=5))
    batches = list(objective.collect(1))
    assert sum(len(batch.examples) for batch in batches) == 2 * 4
    assert sum(float(batch.weights.sum()) for batch in batches) == pytest.approx(1.0)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradient_is_the_derivative(family, checkpointing):
    """Along a random adapter direction, in float64, against a central difference."""
    settings = job(memory={"gradient_checkpointing": "full" if checkpointing else "off"}, schedule={"batch_size": 2})
    state, objective, _, lora = setup(family, settings, dtype=torch.float64)
    for layer in lora.layers.values():
        layer.lora_A["default"].double()
        layer.lora_B["default"].double()
    parameters = lora.parameters()
    batch = next(objective.collect(1))
    batch.noise, batch.sigma = batch.noise.double(), batch.sigma.double()
    batch.text, batch.encoded = ({name: tensor.double() for name, tensor in part.items()} for part in (batch.text, batch.encoded))
    generator = torch.Generator().manual_seed(4)
    direction = [torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in parameters]

    def loss() -> torch.Tensor:
        return (objective.loss(state.transformer, batch) * batch.weights).sum()

    loss().backward()
    slope = sum(float((p.grad * d).sum()) for p, d in zip(parameters, direction, strict=True))
    step, values = 1e-4, []
    for sign in (1, -2):
        for p, d in zip(parameters, direction, strict=True):
            p.data += sign * step * d
        with torch.no_grad():
            values.append(float(loss()))
    assert slope == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-3)
    assert abs(slope) > 1e-6


def test_every_layer_gets_a_gradient(family):
    for checkpointing in (False, True):
        settings = job(memory={"gradient_checkpointing": "full" if checkpointing else "off"})
        state, objective, compute, lora = setup(family, settings, start=0)
        before = [p.detach().clone() for p in lora.parameters()[1::2]]
        train_step(1, settings, state, objective, compute, EventLog(Silent()))
        assert all(not torch.equal(a, b) for a, b in zip(before, lora.parameters()[1::2], strict=True))


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_half_precision_is_close_to_fp32(family, dtype):
    (exact, _), (half, _) = (steps(family, job(compute={"device": "cpu", "dtype": d}), count=3) for d in ("fp32", dtype))
    assert [r.loss for r in half] == pytest.approx([r.loss for r in exact], rel=0.02)
    assert not any(r.skipped for r in half)


def test_a_loss_that_is_not_finite_changes_nothing_and_names_the_clip(family):
    settings = job()
    state, objective, compute, lora = setup(family, settings)
    objective.dataset.latents = lambda item, window=0: {"latents": torch.full((16, 2, 4, 4), float("inf"))}
    before = [p.detach().clone() for p in lora.parameters()]
    with pytest.raises(UserError, match=r"clip\d"):
        train_step(1, settings, state, objective, compute, EventLog(Silent()))
    assert all(torch.equal(a, b) for a, b in zip(before, lora.parameters(), strict=True))


def test_cancel_is_heard_between_micro_batches(family):
    class Cancelling(Silent):
        def request(self):
            return "cancel"

    settings = job(schedule={"accumulation": 4})
    state, objective, compute, _ = setup(family, settings)
    with pytest.raises(Interrupted):
        train_step(1, settings, state, objective, compute, EventLog(Cancelling()))


def test_caption_dropout_is_a_share(family):
    _, objective, _, _ = setup(family, job(captions={"dropout": 0.25}, schedule={"batch_size": 8}))
    captions = [objective._caption(e) for step in range(1, 101) for e in objective.sampler.plan(step).examples]
    assert 0.2 < captions.count("") / len(captions) < 0.3


def test_learning_rate_goes_up_then_down():
    settings = job(optimizer={"warmup": 3, "schedule": "cosine"}).optimizer
    rates = [learning_rate(step, settings, 10) / settings.learning_rate for step in range(1, 11)]
    assert rates[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert rates[3:] == sorted(rates[3:], reverse=True) and 0 < rates[-1] < 0.06
    assert learning_rate(11, settings, 20) > learning_rate(10, settings, 10), "training further goes on with a rate above zero"


@pytest.mark.parametrize(("name", "index"), [("cuda", 1), ("auto", 1), ("cuda:0", 0)])
def test_a_card_is_known_by_its_number(monkeypatch: pytest.MonkeyPatch, name: str, index: int):
    for what, found in (("is_available", True), ("device_count", 2), ("current_device", 1), ("get_device_capability", (9, 0))):
        monkeypatch.setattr(torch.cuda, what, lambda *_, found=found: found)
    assert Compute(ComputeSettings(device=name)).device == torch.device("cuda", index), "some of torch.cuda takes no device without one"


def test_settings_are_kept(family):
    assert AdapterSettings(rank=8).effective_alpha == 8
    assert Compute(ComputeSettings(device="cpu")).dtype == torch.float32
