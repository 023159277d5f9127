"""Stochastic rounding keeps the mean, keeps what is exact, and is drawn the same again."""

from __future__ import annotations

import torch

from trainer import draws
from trainer.job import OptimizerSettings
from trainer.optim import make_optimizer
from trainer.rounding import rounded


def generator(number: int) -> torch.Generator:
    return draws.generator("rounding", number)


def test_the_mean_is_the_value_and_only_neighbours_come() -> None:
    for value in (1.001, -3.0123, 1e-5, -2.7e-20):
        drawn = rounded(torch.full((40000,), value), generator(1)).float()
        nearest = torch.tensor(value).to(torch.bfloat16).float()
        gap = float((drawn.max() - drawn.min()).abs())
        assert len(drawn.unique()) == 2 and nearest in drawn
        assert drawn.min() < value < drawn.max()
        assert abs(float(drawn.double().mean()) - value) < 4 * gap / 2 / 200  # four standard errors at most
        assert gap <= 2**-7 * abs(value) * 1.01


def test_what_bfloat16_holds_stays() -> None:
    exact = torch.tensor([0.0, -0.0, 1.0, -2.5, 3.3895e38, float("inf"), float("-inf")]).to(torch.bfloat16)
    assert torch.equal(rounded(exact.float(), generator(2)), exact)
    assert rounded(torch.tensor([float("nan")]), generator(2)).isnan().all()


def test_small_steps_are_not_lost() -> None:
    """Each is a hundredth of what bfloat16 can tell apart at 1: to the nearest, nothing would ever move."""
    parameter = torch.nn.Parameter(torch.ones(4096, dtype=torch.bfloat16))
    optimizer = make_optimizer([parameter], OptimizerSettings(name="SGD", learning_rate=2**-8 / 100, beta1=0, weight_decay=0))
    for _ in range(100):
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    assert parameter.dtype == torch.bfloat16 and abs(float(parameter.float().mean()) - (1 - 2**-8)) < 2e-4
    assert (torch.ones(1, dtype=torch.bfloat16) - 2**-8 / 100).item() == 1


def test_draws_hang_on_seed_step_and_place() -> None:
    def one_step(seed: int) -> list[torch.Tensor]:
        parameters = [torch.nn.Parameter(torch.ones(4096, dtype=torch.bfloat16)) for _ in range(2)]
        optimizer = make_optimizer(parameters, OptimizerSettings(name="SGD", learning_rate=1e-3, beta1=0), seed=seed)
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        return [parameter.detach() for parameter in parameters]

    first, again, other = one_step(1), one_step(1), one_step(2)
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0]) and not torch.equal(first[0], first[1])
