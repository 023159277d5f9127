"""What the planner counts for an optimizer against what it keeps."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.memory.measured import family_of
from trainer.job import AdapterSettings, OptimizerSettings
from trainer.memory.card import CARDS
from trainer.memory.choices import Choices
from trainer.memory.examples import shapes_at
from trainer.memory.optimizer_state import state_on_card, state_on_host
from trainer.memory.prediction import Micro, Predictor
from trainer.optim import make_optimizer

RANK, WIDE = 8, 512
NAMES = ["AdamW", "Adafactor", "Lion", "Prodigy", "Schedule-free AdamW", "CAME", "Muon", "StableAdamW", "SGD"]
PACKAGED = ("Lion", "Prodigy", "Schedule-free AdamW", "CAME", "StableAdamW")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_equals_what_the_optimizer_keeps(name: str, dtype: torch.dtype) -> None:
    if name in PACKAGED:
        pytest.importorskip("pytorch_optimizer")
    settings = OptimizerSettings(name=name)
    pairs = [nn.Parameter(torch.randn(shape).to(dtype)) for shape in ((RANK, WIDE), (WIDE, RANK))]
    optimizer = make_optimizer(pairs, settings)
    for parameter in pairs:
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    kept = sum(t.nbytes for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor))
    trained = sum(parameter.numel() for parameter in pairs)
    assert state_on_card(settings, trained, RANK) == pytest.approx(kept, rel=0.03, abs=200)
    assert state_on_host(settings, trained, RANK) == 0


def test_without_momentum_nothing_is_kept() -> None:
    assert state_on_card(OptimizerSettings(name="SGD", beta1=0), 1000, 8) == 0
    assert state_on_card(OptimizerSettings(name="SGD"), 1000, 8) == 4000


def test_unknown_ones_are_taken_for_adamw() -> None:
    assert state_on_card(None, 1000, 8) == state_on_card(OptimizerSettings(name="other", other="ADOPT"), 1000, 8) == 8000


def test_offloaded_state_lies_on_the_host() -> None:
    settings = OptimizerSettings(offload_state=True)
    assert state_on_card(settings, 1000, 8) == 0
    assert state_on_host(settings, 1000, 8) == 16_000


def test_the_prediction_counts_it() -> None:
    family = family_of("Wan 2.1 1.3B")
    micro = Micro(shapes_at(family, (1, 256, 256)))

    def found(adapter: AdapterSettings, optimizer: OptimizerSettings | None = None) -> Predictor:
        return Predictor(family, adapter, [micro], CARDS["H200"], torch.bfloat16, optimizer=optimizer)

    plain, sgd = (found(AdapterSettings(rank=32), given).predict(Choices()) for given in (None, OptimizerSettings(name="SGD")))
    trained = plain.adapter // 12
    assert plain.state == 8 * trained and sgd.state == 4 * trained
    assert plain.peak - sgd.peak == 4 * trained
    offloaded = found(AdapterSettings(rank=32), OptimizerSettings(offload_state=True)).predict(Choices())
    assert offloaded.adapter == 4 * trained and offloaded.host - plain.host == 16 * trained
    half = found(AdapterSettings(rank=32, precision="bf16")).predict(Choices())
    assert half.adapter == 10 * trained and half.peak < plain.peak - 2 * trained, "and its gradients"
