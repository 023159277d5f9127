"""What a job is told that does not fit: each change that is named makes it fit, when it is made just so."""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.data.synthetic import Watcher, watched
from tests.tiny.wan import write_tiny_wan
from trainer.combinations import illegal
from trainer.errors import Interrupted, Problem, UserError
from trainer.events import Phase
from trainer.job import TrainingJob
from trainer.memory import changes, plan, remembered
from trainer.memory.card import CARDS, GB
from trainer.memory.changes import Change, lower_ranks
from trainer.memory.choosing import Limits, chosen, smallest, taken, triton_installed
from trainer.memory.examples import planned_micros
from trainer.memory.plan import Plan, make_plan, told_plan
from trainer.memory.prediction import Predictor
from trainer.models import open_model
from trainer.models.base import ModelFamily
from trainer.optimizer_trial import check_optimizer

BUCKETS = {"dataset": {"buckets": ["17x128x128"]}}
LARGE = {"adapter": {"rank": 512}, **BUCKETS}
CURE = re.compile(r"(.+) \(([\d.]+) GB, [\d.e-]+ s a step\)")


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> ModelFamily:
    return open_model(write_tiny_wan(tmp_path_factory.mktemp("wan")))


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes these packages the only optional ones that are here."""

    def only(*names: str) -> None:
        def checked(job: TrainingJob) -> list[Problem]:
            settings, eight_bit = job.optimizer, job.optimizer.name == "AdamW 8-bit"
            if (settings.offload_state and "torchao" not in names) or (eight_bit and not {"bitsandbytes", "torchao"} & set(names)):
                return [Problem("optimizer.name", "is not here.")]
            plain = settings.model_copy(update={"offload_state": False})
            return [] if eight_bit else check_optimizer(job.model_copy(update={"optimizer": plain}))

        monkeypatch.setattr(changes, "check_optimizer", checked)

    only()
    return only


def parsed(settings: dict[str, Any], gigabytes: float = 0.0) -> TrainingJob:
    return TrainingJob.parse({"compute": {"compile": "off"}, **settings, "memory": {**settings.get("memory", {}), "fit_into": gigabytes}})


def planned(family: ModelFamily, job: TrainingJob, say: Callable[[str], object] = lambda _: None) -> Plan:
    assert not illegal(job)
    micros, size = planned_micros(job, family)
    return make_plan(job, family, micros, size, CARDS["H200"], torch.bfloat16, host=100, say=say)


def needed(family: ModelFamily, settings: dict[str, Any], *change: str) -> float:
    """GB that a job takes at least, with a change."""
    job = parsed(settings).overridden(list(change))
    predictor = Predictor(family, job.adapter, planned_micros(job, family)[0], CARDS["H200"], torch.bfloat16, optimizer=job.optimizer)
    found = smallest(predictor, job.memory, job.compute, Limits(0, job.schedule.steps, triton_installed()))
    return taken(found.prediction.peak) / GB


def cures(family: ModelFamily, settings: dict[str, Any], gigabytes: float) -> list[Change]:
    """The changes that are named for a job that may take so much, each of which was made and fitted."""
    job = parsed(settings, gigabytes)
    with pytest.raises(UserError) as refused:
        planned(family, job)
    (problem,) = refused.value.problems
    assert problem.where == "memory.fit_into"
    found: list[Change] = []
    for text in problem.cure.removeprefix("Any of these would fit: ").removesuffix(".").split("; "):
        match = CURE.fullmatch(text)
        assert match, text
        found.append(tuple(re.split(" with | and ", match[1])))
        fitting = planned(family, job.overridden(list(found[-1])))
        assert fitting.training <= gigabytes and f"{fitting.training:.1f}" == match[2]
        if {text.partition("=")[0] for text in found[-1]} <= {"adapter.rank", "adapter.precision", "optimizer.name", "dataset.buckets"}:
            for text in found[-1] if len(found[-1]) > 1 else ():
                with pytest.raises(UserError):  # a change that fits by itself needs no other
                    planned(family, job.overridden([text]))
    assert len(set(found)) == len(found) <= 3
    return found


@pytest.mark.parametrize(
    ("settings", "change"),
    [
        (LARGE, ("adapter.precision=bf16",)),
        (LARGE, ("optimizer.name=Adafactor",)),
        (LARGE, ("adapter.rank=256",)),
        (LARGE, ("adapter.rank=16",)),
        ({"adapter": {"rank": 512, "precision": "bf16"}, **BUCKETS}, ("optimizer.name=Adafactor",)),
        ({**LARGE, "optimizer": {"name": "Lion", "learning_rate": 5e-5}}, ("adapter.precision=bf16",)),
        ({**LARGE, "memory": {"weights": "unquantized", "gradient_checkpointing": "off"}}, ("memory.gradient_checkpointing=auto",)),
        ({"dataset": {"buckets": ["1x64x64", "17x128x128"]}}, ('dataset.buckets=["17x96x96", "1x64x64"]',)),
        (
            {"dataset": {"frame_buckets": [17], "resolutions": [128], "aspect_ratios": [1]}},
            ('dataset.buckets=["17x96x96"]', "dataset.frame_buckets=[]", "dataset.resolutions=[]"),
        ),
    ],
    ids=str,
)
def test_the_cheapest_change_that_fits_is_named_first(
    family: ModelFamily, packages: object, settings: dict[str, Any], change: Change
) -> None:
    assert cures(family, settings, needed(family, settings, *change) + 1e-6)[0] == change


def test_two_changes_are_named_where_one_is_not_enough(family: ModelFamily, packages: object) -> None:
    both = ("optimizer.name=Adafactor", 'dataset.buckets=["5x64x64"]')
    settings = {"adapter": {"rank": 512, "continue_from": "made.safetensors"}, **BUCKETS}  # whose rank stays
    found = cures(family, settings, (needed(family, settings, *both) + needed(family, settings, both[0], "adapter.precision=bf16")) / 2)
    assert found and all(len(change) > 1 for change in found)


OFFLOADED, UNCLIPPED = "optimizer.offload_state=true", "optimizer.max_grad_norm=0"


def test_state_in_host_memory_is_first_where_gradients_are_not_clipped(family: ModelFamily, packages: Callable[..., None]) -> None:
    packages("torchao")
    settings = {**LARGE, "optimizer": {"max_grad_norm": 0}}
    gigabytes = needed(family, settings, OFFLOADED) + 1e-6
    assert cures(family, settings, gigabytes)[0] == (OFFLOADED,)
    packages()
    assert (OFFLOADED,) not in cures(family, settings, gigabytes), "torchao is not installed"


def test_state_in_host_memory_comes_without_clipping_and_then_later(family: ModelFamily, packages: Callable[..., None]) -> None:
    packages("torchao")
    gigabytes = needed(family, LARGE, "optimizer.name=Adafactor") + 1e-6
    found = cures(family, LARGE, gigabytes)
    assert found[:2] == [("optimizer.name=Adafactor",), (OFFLOADED, UNCLIPPED)]
    assert not any(OFFLOADED in change for change in cures(family, {**LARGE, "schedule": {"accumulation": 2}}, gigabytes))


def test_state_in_8_bits_is_named_where_a_package_for_it_is_here(family: ModelFamily, packages: Callable[..., None]) -> None:
    gigabytes = needed(family, LARGE, "adapter.precision=bf16") + 1e-6
    packages("bitsandbytes")
    assert cures(family, LARGE, gigabytes)[:2] == [("optimizer.name=AdamW 8-bit",), ("adapter.precision=bf16",)]
    packages()
    assert not any("8-bit" in text for change in cures(family, LARGE, gigabytes) for text in change)


def test_an_optimizer_with_other_rates_is_not_named(family: ModelFamily, packages: object) -> None:
    settings = {**LARGE, "optimizer": {"name": "Prodigy", "learning_rate": 1}}
    found = cures(family, settings, needed(family, settings, "adapter.precision=bf16") + 1e-6)
    assert not any(text.startswith("optimizer.name") for change in found for text in change)


def test_lower_ranks_keep_the_strength_and_continued_loras_their_rank() -> None:
    ranks = [lower_ranks(TrainingJob.parse({"adapter": adapter})) for adapter in ({"rank": 20}, {"rank": 16, "alpha": 8}, {"rank": 4})]
    assert ranks == [[("adapter.rank=10",), ("adapter.rank=5",)], [(f"adapter.rank={n}", f"adapter.alpha={n / 2:g}") for n in (8, 4)], []]
    assert lower_ranks(TrainingJob.parse({"adapter": {"rank": 64, "continue_from": "made.safetensors"}})) == []


def test_where_no_change_is_enough_none_is_named(family: ModelFamily, packages: object) -> None:
    with pytest.raises(UserError) as refused:
        planned(family, parsed(LARGE, 0.1))
    assert re.fullmatch(r"Set it to 0\.\d or more, or to 0 for all of the card\.", refused.value.problems[0].cure)


@pytest.mark.parametrize(
    "memory", [{}, {"weights": "fp8"}, {"weights": "unquantized"}, {"gradient_checkpointing": "selective"}, {"layer_offload_fraction": 0.5}]
)
def test_what_is_smallest_is_found_and_nothing_smaller(family: ModelFamily, memory: dict[str, Any]) -> None:
    """The fastest way of computing was the only one that was looked at, and fp8 that is multiplied as it is not for the smallest."""
    job = TrainingJob.parse({"memory": memory, "schedule": {"batch_size": 2}, **BUCKETS})
    predictor = Predictor(family, job.adapter, planned_micros(job, family)[0], CARDS["H200"], torch.bfloat16)
    least = taken(smallest(predictor, job.memory, job.compute, Limits(0, 1000, compiler=True)).prediction.peak)
    found = [chosen(predictor, job.memory, job.compute, Limits(least - less, 1000, compiler=True)) for less in (0, 1)]
    assert found[0] and taken(found[0].prediction.peak) <= least and found[1] is None


def test_a_plan_says_what_is_on_and_ends_where_that_raises(family: ModelFamily, packages: object, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if "would" in text:
            raise Interrupted

    monkeypatch.setattr(remembered, "_known", {})
    with pytest.raises(Interrupted):
        planned(family, parsed(LARGE, needed(family, LARGE, "adapter.rank=256")), say)
    assert said[0].endswith("rehearsing steps") and said[-1].endswith("would adapter.precision=bf16 fit?")
    with pytest.raises(UserError):
        planned(family, parsed(LARGE, 0.1))


def test_a_run_that_is_cancelled_while_it_is_planned_ends(family: ModelFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told that memory could not be predicted, and went on."""
    heard = Watcher(cancel_when=lambda event: isinstance(event, Phase))
    monkeypatch.setattr(remembered, "_known", {})

    def plan_for_run(job: TrainingJob, family: ModelFamily, *_: object) -> Plan:
        return planned(family, job, _[-1])  # type: ignore[arg-type]

    monkeypatch.setattr(plan, "plan_for_run", plan_for_run)
    components: Any = SimpleNamespace(family=family, compute=SimpleNamespace(device=torch.device("cuda"), dtype=torch.bfloat16))
    with pytest.raises(Interrupted):
        told_plan(parsed(BUCKETS), components, None, watched(heard))  # type: ignore[arg-type]
    assert not heard.notices


def test_what_is_on_is_told_once() -> None:
    told: list[object] = []
    say = watched(Watcher(cancel_when=lambda event: bool(told.append(event)))).saying("plan")
    for text in ("one", "one", "two", "one"):
        say(text)
    assert [(event.name, event.detail) for event in told if isinstance(event, Phase)] == [("plan", text) for text in ("one", "two", "one")]


def test_windows_are_made_shorter_and_their_buckets_smaller(family: ModelFamily) -> None:
    """Buckets were named that no window fits into, or one window of a range that had many."""
    settings = {
        "dataset": {"buckets": ["81x128x128"], "windows": {"size": 33}}, "adapter": {"rank": 4, "precision": "bf16"},
        "optimizer": {"name": "SGD", "beta1": 0, "learning_rate": 1e-3},
    }  # fmt: skip
    resized = re.compile(r'dataset\.(windows\.size=\d+|buckets=\["81x\d+x\d+"\])')
    found = cures(family, settings, needed(family, settings) - 0.001)
    assert found and all(resized.fullmatch(text) for change in found for text in change)


def test_another_optimizer_takes_the_options_that_are_set(family: ModelFamily, packages: Callable[..., None]) -> None:
    """AdamW's eps is a number and Adafactor's a pair."""
    settings = {**LARGE, "optimizer": {"options": "eps=1e-6 foreach=False"}}
    found = cures(family, settings, needed(family, settings) - 0.001)
    assert found and not any("Adafactor" in text for change in found for text in change)
