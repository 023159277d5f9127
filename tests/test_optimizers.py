"""Optimizers: each learns, each is resumed to the bit, each follows its parameters, and what cannot be used is told before."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from trainer import draws, optimizer_kinds
from trainer.errors import UserError
from trainer.job import OptimizerSettings, TrainingJob
from trainer.optim import (
    averaged,
    follow_parameters,
    load_optimizer_state,
    make_optimizer,
    optimizer_state,
    set_learning_rate,
)
from trainer.optimizer_kinds import KINDS, LIBRARY
from trainer.optimizer_settings import OptimizerName
from trainer.optimizer_trial import check_optimizer, optimizer_notices
from trainer.packages import OPTIONAL, install_command

RATES = {"Prodigy": 1.0, "SGD": 0.001, "CAME": 0.003, "Schedule-free AdamW": 0.02}
NAMES = [name for name in KINDS if name != "other"]
LIBRARIES = {"AdamW 8-bit": ("bitsandbytes", "torchao"), **{name: (LIBRARY,) for name, kind in KINDS.items() if kind.package == LIBRARY}}


def there(module: str) -> bool:
    """Whether an optional package imports."""
    try:
        importlib.import_module(module)
    except Exception:
        return False
    return True


def needs(name: str) -> None:
    """Skips a test whose optimizer's package is absent."""
    packages = LIBRARIES.get(name, ())
    if packages and not any(map(there, packages)):
        pytest.skip(f"{name} needs {' or '.join(packages)}")


def settings(name: str, **more: Any) -> OptimizerSettings:
    return OptimizerSettings.model_validate({"name": name, "learning_rate": RATES.get(name, 0.01), **more})


class Regression:
    """A LoRA A [8, 640], B [640, 8] that learns a matrix of rank 4; large enough for 8-bit state."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.goal = draws.normal((640, 4), "goal", 0) @ draws.normal((4, 640), "goal", 1) / 100
        self.down = nn.Parameter((draws.normal((8, 640), "down") / 640**0.5).to(dtype))
        self.up = nn.Parameter(torch.zeros(640, 8, dtype=dtype))
        self.parameters = [self.down, self.up]

    def loss(self, number: int) -> Tensor:
        inputs = draws.normal((32, 640), "inputs", number)
        return ((inputs @ self.down.float().T @ self.up.float().T - inputs @ self.goal.T) ** 2).sum(1).mean()

    def train(self, optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
        for number in range(first, last):
            optimizer.zero_grad(set_to_none=True)
            self.loss(number).backward()
            optimizer.step()

    def fresh(self) -> Regression:
        """A copy with its own weights."""
        other = Regression(self.down.dtype)
        with torch.no_grad():
            for own, source in zip(other.parameters, self.parameters, strict=True):
                own.copy_(source)
        return other


def resumed(optimizer: torch.optim.Optimizer, make: Callable[[], torch.optim.Optimizer]) -> torch.optim.Optimizer:
    """The optimizer as a checkpoint gives it back."""
    file = io.BytesIO()
    torch.save(optimizer_state(optimizer), file)
    file.seek(0)
    other = make()
    load_optimizer_state(other, torch.load(file, weights_only=True, map_location="cpu"))
    return other


def test_the_table_has_every_name() -> None:
    assert tuple(KINDS) == get_args(OptimizerName)


def test_the_readme_has_the_table(root: Path) -> None:
    """Every name, rates that are usual here, the memory and the package."""
    section = (root / "README.md").read_text(encoding="utf-8").partition("\n## Optimizers\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in section.splitlines() if line.startswith("| ")][1:]
    assert [row[0] for row in rows] == list(get_args(OptimizerName))
    for name, _, rates, size, package in rows:
        kind = KINDS[name]
        assert ("`bitsandbytes` or `torchao`" if not kind.package else f"`{LIBRARY}`" if kind.package == LIBRARY else "–") == package
        if name == "other":
            continue
        low, _, high = rates.partition(" to ")
        assert kind.rates[0] <= float(low) <= float(high or low) <= kind.rates[1]
        assert int(size) == int(kind.state_bytes)
    for package in (LIBRARY, "bitsandbytes", "torchao"):
        command = install_command(OPTIONAL.get(package, package)).partition(" -m pip install ")[2]
        assert f"`python -m pip install {command}`" in section


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_each_lowers_the_loss(name: str, precision: str) -> None:
    needs(name)
    task = Regression(torch.float32 if precision == "fp32" else torch.bfloat16)
    optimizer = make_optimizer(task.parameters, settings(name))
    before = task.loss(-1).item()
    task.train(optimizer, 0, 120 if name == "Prodigy" else 60)  # it begins with finding a rate
    with averaged(optimizer):
        assert task.loss(-1).item() < 0.7 * before
    assert {parameter.dtype for parameter in task.parameters} == {torch.float32 if precision == "fp32" else torch.bfloat16}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_resumed_run_is_the_same_to_the_bit(name: str, precision: str) -> None:
    needs(name)
    straight = Regression(torch.float32 if precision == "fp32" else torch.bfloat16)
    chosen = settings(name, lora_plus_ratio=1.0 if name == "Prodigy" else 4.0)
    whole = make_optimizer(straight.parameters, chosen, faster=[straight.up])
    straight.train(whole, 0, 4)
    second = straight.fresh()
    with averaged(whole):  # samples are drawn in one run only
        drawn = straight.up.detach().clone()
    other = resumed(whole, lambda: make_optimizer(second.parameters, chosen, faster=[second.up]))
    straight.train(whole, 4, 8)
    second.train(other, 4, 8)
    for a, b in zip(straight.parameters, second.parameters, strict=True):
        assert torch.equal(a, b)
    if name == "Schedule-free AdamW":
        assert not torch.equal(drawn, straight.fresh().up)
    assert all(
        torch.equal(value, other.state[b][key])
        for a, b in zip(straight.parameters, second.parameters, strict=True)
        for key, value in whole.state[a].items()
        if type(value) is Tensor and "qmap" not in key
    )


def test_adamw_is_torchs_own_to_the_bit() -> None:
    task = Regression()
    plain = task.fresh()
    chosen = OptimizerSettings()
    ours = make_optimizer(task.parameters, chosen, faster=[task.up])
    torchs = torch.optim.AdamW(plain.parameters, lr=2e-4, betas=(0.9, 0.99), weight_decay=0.01, fused=False)
    assert type(ours) is torch.optim.AdamW
    saved = [optimizer.state_dict()["param_groups"] for optimizer in (ours, torchs)]
    assert saved[0] == saved[1]
    task.train(ours, 0, 5)
    plain.train(torchs, 0, 5)
    assert all(torch.equal(a, b) for a, b in zip(task.parameters, plain.parameters, strict=True))


def test_checkpoints_from_before_are_taken_up() -> None:
    """They hold no name of a class."""
    task = Regression()
    optimizer = make_optimizer(task.parameters, OptimizerSettings())
    task.train(optimizer, 0, 2)
    other = make_optimizer(task.parameters, OptimizerSettings())
    load_optimizer_state(other, {"optimizer": optimizer.state_dict(), "scaler": {}})
    assert torch.equal(other.state[task.up]["exp_avg"], optimizer.state[task.up]["exp_avg"])


def test_state_of_another_library_is_refused() -> None:
    optimizer = make_optimizer(Regression().parameters, OptimizerSettings())
    with pytest.raises(UserError, match=r"made by bitsandbytes\.AdamW8bit, and here torch\.AdamW is used"):
        load_optimizer_state(optimizer, {"optimizer": {}, "optimizer_class": "bitsandbytes.AdamW8bit"})


@pytest.mark.parametrize("package", ["bitsandbytes", "torchao"])
def test_8_bit_state_of_each_library(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of AdamW's memory and nearly its steps; either library alone will do."""
    if not there(package):
        pytest.skip(f"{package} is not installed")
    other = {"bitsandbytes": "torchao", "torchao": "bitsandbytes"}[package]
    found = optimizer_kinds.find_spec
    monkeypatch.setattr(optimizer_kinds, "find_spec", lambda name: None if name == other else found(name))
    optimizer_kinds._eight_bit.cache_clear()
    task = Regression()
    exact = task.fresh()
    optimizer = make_optimizer(task.parameters, settings("AdamW 8-bit"))
    optimizer_kinds._eight_bit.cache_clear()
    assert optimizer_state(optimizer)["optimizer_class"] == f"{package}.AdamW8bit"
    task.train(optimizer, 0, 5)
    exact.train(make_optimizer(exact.parameters, settings("AdamW")), 0, 5)
    assert (task.up - exact.up).norm() < 0.1 * exact.up.norm()
    second = task.fresh()
    again = resumed(optimizer, lambda: type(optimizer)(second.parameters, lr=0.01, betas=(0.9, 0.99), weight_decay=0.01))
    task.train(optimizer, 5, 8)
    second.train(again, 5, 8)
    assert torch.equal(task.up, second.up)
    saved = io.BytesIO()
    torch.save(optimizer.state_dict(), saved)
    assert len(saved.getvalue()) < 2.6 * sum(parameter.numel() for parameter in task.parameters) + 20_000


def test_8_bit_without_a_library_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer_kinds, "find_spec", lambda _: None)
    optimizer_kinds._eight_bit.cache_clear()
    with pytest.raises(UserError, match=r"neither is installed.*pip install .bitsandbytes"):
        make_optimizer(Regression().parameters, settings("AdamW 8-bit"))
    optimizer_kinds._eight_bit.cache_clear()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "AdamW 8-bit"])
def test_state_takes_the_memory_that_the_table_says(name: str) -> None:
    needs(name)
    task = Regression()
    optimizer = make_optimizer(task.parameters, settings(name))
    task.train(optimizer, 0, 2)
    size = sum(value.nbytes for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor))
    numbers = sum(parameter.numel() for parameter in task.parameters)
    rows_and_columns = 3 * 4 * sum(sum(parameter.shape) for parameter in task.parameters)
    assert 0 <= size - KINDS[name].state_bytes * numbers <= rows_and_columns + 100


def test_lora_plus_gives_the_second_matrix_its_rate() -> None:
    task = Regression()
    optimizer = make_optimizer(task.parameters, settings("SGD", lora_plus_ratio=16, beta1=0, weight_decay=0), faster=[task.up])
    set_learning_rate(optimizer, 0.001)
    before = [parameter.detach().clone() for parameter in task.parameters]
    with torch.no_grad():
        for parameter in task.parameters:
            parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    moved = [float((a - b).mean()) for a, b in zip(before, task.parameters, strict=True)]
    assert moved == pytest.approx([0.001, 0.016], rel=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_the_rate_of_the_next_step_is_heard(name: str) -> None:
    needs(name)
    task = Regression()
    optimizer = make_optimizer(task.parameters, settings(name))
    task.train(optimizer, 0, 3)
    still = [parameter.detach().clone() for parameter in task.parameters]
    set_learning_rate(optimizer, 0.0)
    task.train(optimizer, 3, 4)
    for before, after in zip(still, task.parameters, strict=True):
        change = float((before - after).norm() / before.norm())
        assert change == pytest.approx(0, abs=1e-6 if name != "Schedule-free AdamW" else 1)


@pytest.mark.parametrize("name", NAMES)
def test_experts_in_turns_are_as_if_alone(name: str) -> None:
    """What one learns does not depend on the other's steps in between."""
    needs(name)
    high, low, alone = Regression(), Regression(), Regression()
    chosen = settings(name)
    both = make_optimizer([*high.parameters, *low.parameters], chosen, turns=[high.parameters, low.parameters])
    single = make_optimizer(alone.parameters, chosen)
    for number in range(4):
        for task, optimizer in ((high, both), (low, both), (alone, single)):
            both.zero_grad(set_to_none=True)
            single.zero_grad(set_to_none=True)
            task.loss(number).backward()
            optimizer.step()
    for task in (high, low):
        assert all(torch.equal(a, b) for a, b in zip(task.parameters, alone.parameters, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_state_follows_its_parameter(name: str) -> None:
    """To the device "meta", as no card is here; torch lets no parameter go there, so that another takes its place."""
    needs(name)
    high, low = Regression(), Regression()
    optimizer = make_optimizer([*high.parameters, *low.parameters], settings(name), turns=[high.parameters, low.parameters])
    for task in (high, low):
        optimizer.zero_grad(set_to_none=True)
        task.train(optimizer, 0, 2)
    moved = {parameter: nn.Parameter(torch.empty_like(parameter, device="meta")) for parameter in high.parameters}
    for group in optimizer.param_groups:
        group["params"] = [moved.get(parameter, parameter) for parameter in group["params"]]
    for before, after in moved.items():
        optimizer.state[after] = optimizer.state.pop(before)
    high.parameters = list(moved.values())
    follow_parameters(optimizer)

    def kept(task: Regression) -> set[str]:
        states = [optimizer.state[parameter] for parameter in task.parameters]
        return {v.device.type for state in states for key, v in state.items() if isinstance(v, Tensor) and key != "step"}

    assert kept(high) == {"meta"} and kept(low) == {"cpu"}


def test_schedule_free_shows_its_average_and_leaves_no_trace() -> None:
    needs("Schedule-free AdamW")
    task = Regression()
    optimizer = make_optimizer(task.parameters, settings("Schedule-free AdamW"))
    task.train(optimizer, 0, 20)
    trained = task.up.detach().clone()
    z = optimizer.state[task.up]["z"]
    with averaged(optimizer):
        # training weights y = (1 - beta1) z + beta1 x (Defazio et al. 2024), so the average is x = (y - (1 - beta1) z) / beta1
        assert torch.allclose(task.up, (trained - 0.1 * z) / 0.9, atol=1e-6)
        shown = task.up.detach().clone()
    assert torch.equal(task.up, trained) and not torch.allclose(shown, trained, atol=1e-4)
    with pytest.raises(RuntimeError), averaged(optimizer):
        raise RuntimeError
    assert torch.equal(task.up, trained)


def test_options_reach_the_class() -> None:
    task = Regression()
    optimizer = make_optimizer(task.parameters, settings("AdamW", options="eps=1e-6, amsgrad=true betas=(0.5, 0.6)"))
    group = optimizer.param_groups[0]
    assert (group["eps"], group["amsgrad"], group["betas"]) == (1e-6, True, (0.5, 0.6))


@pytest.mark.parametrize(
    ("text", "said"),
    [("eps", "'eps' is no option"), ("lr=1", "lr is not an option"), ("a=1 a=2", "given twice"), ("a=1 ; rm -rf", "is no option")],
)
def test_options_that_are_none(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        TrainingJob.parse({"optimizer": {"options": text}})
    assert caught.value.problems[0].where == "optimizer.options"


def problems(**optimizer: Any) -> str:
    job = TrainingJob.parse({"optimizer": optimizer, "compute": {"device": "cpu"}})
    return "\n".join(map(str, check_optimizer(job)))


def test_options_that_the_class_lacks_are_told() -> None:
    text = problems(options="esp=1e-6")
    assert text.startswith("optimizer.options: AdamW has no esp.") and "'eps'" in text
    assert "betas" in problems(options="betas=(0.9, 2)") or "beta" in problems(options="betas=(0.9, 2)")
    assert not problems(options="eps=1e-6") and not problems()


def test_a_missing_package_is_told_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, LIBRARY, None)
    text = problems(name="Lion", learning_rate=5e-5)
    assert LIBRARY in text and f'-m pip install "{LIBRARY}>=4"' in text


@pytest.mark.parametrize("other", ["adopt", "SOAP", "AdamP", "NorMuon", "ScheduleFreeSGD"])
def test_any_class_of_the_library(other: str) -> None:
    needs("Lion")
    assert not problems(name="other", other=other)
    task = Regression()
    optimizer = make_optimizer(task.parameters, settings("other", other=other))
    before = task.loss(-1).item()
    task.train(optimizer, 0, 60)
    with averaged(optimizer):
        assert task.loss(-1).item() < 0.9 * before


def test_classes_that_cannot_be_used_are_told() -> None:
    needs("Lion")
    assert "has no optimizer 'ADOTP'. Did you mean 'ADOPT'?" in problems(name="other", other="ADOTP")
    reasons = {
        "SAM": "it needs base_optimizer", "LOMO": "it needs model", "BSAM": "it needs num_data; numbers among them go into",
        "SCION": "its state holds objects", "AdaShift": "its state holds objects", "SophiaH": "it takes gradients of gradients",
        "A2Grad": "it has no learning rate", "SPlus": "it cannot show its averaged weights before its first step",
        "DeMo": "it trains in several processes",
    }  # fmt: skip
    for other, reason in reasons.items():
        text = problems(name="other", other=other)
        assert text.startswith(f"optimizer.other: {other} cannot be used here: {reason}") and "\x1b" not in text
    assert "num_data" not in problems(name="other", other="BSAM", options="num_data=100")


def test_what_only_averaging_shows_is_told() -> None:
    """Options get round the table, which knows settings only."""
    needs("Lion")
    text = problems(name="Schedule-free AdamW", learning_rate=1e-3, options="betas=(0, 0.99)")
    assert text.startswith("optimizer.options: Schedule-free AdamW cannot be used here")


INEFFECTIVE = ("AdaFactor", "ApolloDQN", "DAdaptAdam", "DAdaptLion", "DAdaptSGD", "LoRARite")
EFFECTIVE = ("ADOPT", "FTRL", "LaProp", "MADGRAD", "Nero", "RAdam", "SignSGD", "SOAP", "SRMM")


@pytest.mark.parametrize("other", INEFFECTIVE)
@pytest.mark.parametrize("ratio", [16, 0.25])
def test_lora_plus_without_effect_is_refused(other: str, ratio: float) -> None:
    """Of one rate for all matrices, or one that heeds none."""
    needs("Lion")
    text = problems(name="other", other=other, learning_rate=1, lora_plus_ratio=ratio)
    assert text.startswith(f"optimizer.other, optimizer.lora_plus_ratio: {other} and {ratio:g} do not go together"), text
    assert not problems(name="other", other=other, learning_rate=1)


@pytest.mark.parametrize("other", EFFECTIVE)
@pytest.mark.parametrize(("rate", "ratio"), [(1e-3, 16), (5e-6, 1.1), (1e-3, 0.25)])
def test_lora_plus_with_effect_is_taken(other: str, rate: float, ratio: float) -> None:
    """Also where the first step is the same with any rate, or none is done, where not all of the ratio comes through, and where it
    does from zero only or not from zero."""
    needs("Lion")
    assert not problems(name="other", other=other, learning_rate=rate, lora_plus_ratio=ratio)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("AdamW", "Prodigy")])
def test_lora_plus_goes_with_all_in_the_table_but_prodigy(name: str) -> None:
    needs(name)
    assert not problems(name=name, learning_rate=1e-3, lora_plus_ratio=16)


@pytest.mark.parametrize("chosen", [{"name": "Prodigy"}, {"name": "other", "other": "prodigy"}])
def test_what_the_table_tells_is_not_told_again(chosen: dict[str, str]) -> None:
    needs("Prodigy")
    assert not problems(**chosen, learning_rate=1e-3, lora_plus_ratio=16)


def test_options_may_make_lora_plus_effective() -> None:
    needs("Lion")
    chosen = {"name": "other", "other": "AdaFactor", "learning_rate": 1e-3, "lora_plus_ratio": 16}
    assert problems(**chosen) and not problems(**chosen, options="relative_step=false")


def test_a_low_rate_for_what_multiplies_its_own_is_refused() -> None:
    needs("Lion")
    for other in ("DAdaptAdam", "DAdaptAdan"):
        text = problems(name="other", other=other)
        assert text.startswith("optimizer.other, optimizer.learning_rate") and f"{other} finds the rate by itself" in text
        assert not problems(name="other", other=other, learning_rate=1)


def test_what_is_unusual_is_told() -> None:
    def told(**optimizer: Any) -> list[str]:
        return optimizer_notices(TrainingJob.parse({"optimizer": optimizer, "compute": {"device": "cpu"}}))

    assert not told() and not told(name="Adafactor")
    (text,) = told(name="Lion")
    assert "from 2e-06 to 0.0001; this is 0.0002" in text
    needs("Lion")
    assert not told(name="other", other="ADOPT")
    random, state = told(name="other", other="Gravity")[0], told(name="other", other="Magma")[0]
    assert random.startswith("Gravity draws random numbers") and state.startswith("Magma does not keep all of its state")
    (text,) = told(name="other", other="AdaFactor")
    assert text.startswith("AdaFactor takes no notice of optimizer.learning_rate")
    assert not told(name="other", other="AdaFactor", options="relative_step=false")
