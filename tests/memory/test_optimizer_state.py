"""What the planner counts for an optimizer against what it keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.memory.measured import family_of
from trainer.job import AdapterSettings, OptimizerSettings
from trainer.memory.card import CARDS
from trainer.memory.choices import Choices
from trainer.memory.examples import shapes_at
from trainer.memory.optimizer_state import state_on_card, state_on_host, trained_numbers
from trainer.memory.prediction import Micro, Predictor
from trainer.optim import make_optimizer

RANK, WIDE = 8, 512
LAYERS = (((WIDE, WIDE), 1),)
NUMBERS = 2 * RANK * WIDE
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
    assert trained_numbers(LAYERS, RANK) == sum(parameter.numel() for parameter in pairs)
    assert state_on_card(settings, LAYERS, RANK) == pytest.approx(kept, rel=0.03, abs=200)
    assert state_on_host(settings, LAYERS, RANK) == 0


def test_without_momentum_nothing_is_kept() -> None:
    assert state_on_card(OptimizerSettings(name="SGD", beta1=0), LAYERS, RANK) == 0
    assert state_on_card(OptimizerSettings(name="SGD"), LAYERS, RANK) == 4 * NUMBERS


@pytest.mark.parametrize(("other", "each"), [("SGDW", 0), ("Lion", 4), ("ADOPT", 8), ("AdEMAMix", 12), ("Adan", 16), ("Prodigy", 16)])
def test_other_classes_keep_what_their_steps_leave(other: str, each: int) -> None:
    """All of them were taken for AdamW's 8 bytes a number. Prodigy asks for values, and is tried on some."""
    pytest.importorskip("pytorch_optimizer")
    settings = OptimizerSettings(name="other", other=other)
    assert state_on_card(settings, LAYERS, RANK) == each * NUMBERS
    many = (((256, 1024), 3), ((64, 512), 5))
    assert state_on_card(settings, many, RANK) == each * trained_numbers(many, RANK)


def test_what_grows_with_the_square_of_a_layer_is_counted_for_its_own_size() -> None:
    """SOAP keeps four numbers for each pair of a layer's columns: no small matrix tells of it, and the real one would take minutes."""
    pytest.importorskip("pytorch_optimizer")
    settings = OptimizerSettings(name="other", other="SOAP")
    for wide in (1024, 2048):
        assert state_on_card(settings, (((wide, wide), 1),), 16) == pytest.approx(16 * wide**2, rel=0.05)


def test_options_that_keep_more_are_counted() -> None:
    pytest.importorskip("pytorch_optimizer")
    assert state_on_card(OptimizerSettings(options="amsgrad=True"), LAYERS, RANK) == pytest.approx(12 * NUMBERS, abs=16)
    momentum = OptimizerSettings(name="other", other="SGDW", options="momentum=0.9")
    assert state_on_card(momentum, LAYERS, RANK) == 4 * NUMBERS


def test_unknown_ones_are_taken_for_adamw() -> None:
    for unknown in (OptimizerSettings(name="other", other="no such class"), OptimizerSettings(options="no_such_option=1")):
        assert state_on_card(unknown, LAYERS, RANK) == 8 * NUMBERS


def test_offloaded_state_lies_on_the_host() -> None:
    settings = OptimizerSettings(offload_state=True)
    assert state_on_card(settings, LAYERS, RANK) == 0
    assert state_on_host(settings, LAYERS, RANK) == 16 * NUMBERS


def test_the_prediction_counts_it() -> None:
    family = family_of("Wan 2.1 1.3B")
    micro = Micro(shapes_at(family, (1, 256, 256)))

    def found(adapter: AdapterSettings, **optimizer: Any) -> Predictor:
        return Predictor(family, adapter, [micro], CARDS["H200"], torch.bfloat16, optimizer=OptimizerSettings(**optimizer))

    plain, sgd = (found(AdapterSettings(rank=32), name=name).predict(Choices()) for name in ("AdamW", "SGD"))
    trained = plain.adapter // 12
    assert plain.state == 8 * trained and sgd.state == 4 * trained
    assert plain.peak - sgd.peak == 4 * trained
    offloaded = found(AdapterSettings(rank=32), offload_state=True).predict(Choices())
    assert offloaded.adapter == 4 * trained and offloaded.host - plain.host == 16 * trained
    half = found(AdapterSettings(rank=32, precision="bf16")).predict(Choices())
    assert half.adapter == 10 * trained and half.peak < plain.peak - 2 * trained, "and its gradients"
