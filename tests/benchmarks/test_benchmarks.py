"""The benchmarks' own code, run on a CPU with models of two layers: their figures mean nothing here, that they run does."""

from __future__ import annotations

import importlib
import importlib.util
import math
from pathlib import Path

import pytest
import torch

from tests.acceptance.speed_memory import SPEEDS
from tests.benchmarks import caps, loss_parity, offload, step
from tests.benchmarks.bucket_shapes import SIZES, SMALL_SIZES
from tests.benchmarks.full_size import FULL, opened, random_data, random_weights
from tests.benchmarks.plan import SETTINGS, planned, predicted
from tests.benchmarks.settings import EAGER, PLAIN, USUAL, choices_of, words_of
from tests.benchmarks.training import Way, Work, lora_on, measured, ours, plain, timed

CPU = torch.device("cpu")
WAN = Work("Wan 2.1 14B", small=True, rank=4)


@pytest.mark.parametrize("file", sorted(Path(__file__).parent.glob("*.py")), ids=lambda file: file.stem)
def test_imports(file: Path) -> None:
    importlib.import_module(f"tests.benchmarks.{file.stem}")


@pytest.mark.parametrize("file", ["speed_memory", "comfyui_on_card"])
def test_acceptance_imports(file: str) -> None:
    importlib.import_module(f"tests.acceptance.{file}")


@pytest.mark.parametrize(
    "words",
    [
        *USUAL[1:],
        "nf4 compiled full swap 0.5",
        "fp8 products compiled light",
        "fp8 products compiled offloaded swap 1",
        "bf16 compiled selective lighter 0.5",
    ],
)
def test_words_say_the_choices(words: str) -> None:
    assert words_of(choices_of(words)) == words


def test_words_that_say_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="fp9"):
        choices_of("fp9 eager full")


def test_all_rows_and_settings_are_in_words() -> None:
    assert all(row.work.model in FULL for row in caps.ROWS.values())
    assert len(SETTINGS) >= 12 and all(words_of(choices_of(words)) == words for _, words in SETTINGS.values())
    assert len(set(SIZES)) == len(set(SMALL_SIZES)) == 12


def test_a_full_model_has_its_size_in_name_only() -> None:
    billions = sum(p.numel() for p in opened("Wan 2.1 14B").skeleton.parameters()) / 1e9
    assert 14 < billions < 14.5


def test_weights_are_the_same_in_each_place_and_what_is_exact_stays_so() -> None:
    family, made = opened(WAN.model, small=True), []
    for _ in range(2):
        with random_weights(family, CPU, CPU):
            made.append(family.load_transformer(torch.bfloat16))
    one, two = (dict(model.named_parameters()) for model in made)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert one["blocks.0.scale_shift_table"].dtype == torch.float32 and one["blocks.0.attn1.to_q.weight"].dtype == torch.bfloat16


def test_clips_of_a_batch_differ() -> None:
    given = random_data(WAN.full, opened(WAN.model, small=True), [WAN.shape], 2)
    first, second = (given.latents(item)["latents"] for item in given.items)
    assert first.shape == second.shape and not torch.equal(first, second)


def test_a_step_of_both_ways() -> None:
    """Ours repeats itself to the bit whatever is swapped; plain has a finite loss."""
    way = Way(deterministic=True)
    found = [
        measured(lambda words=words: ours(WAN, choices_of(words), CPU, way), CPU, 1, 1) for words in (EAGER, "bf16 eager selective swap 1")
    ]
    assert found[0].losses == found[1].losses and len(found[0].losses) == 2
    theirs = measured(lambda: plain(WAN, CPU), CPU, 1, 1)
    assert all(map(math.isfinite, theirs.losses)) and theirs.seconds > 0 and math.isnan(theirs.allocated_gib)


def test_operations_are_those_that_can_be_counted_by_hand() -> None:
    """Of one block more: products with the weights forward and backward, attention as two and five products."""
    work = Work("Wan 2.1 1.3B", (9, 64, 64), rank=1)
    family = opened(work.model)
    counted = step.operations(work)
    shapes = family.layer_shapes
    tokens, texts, width, blocks = 3 * 4 * 4, 512, 1536, 30
    inside = {name: rows * columns for name, (rows, columns) in shapes.items() if name.startswith("blocks.0.")}
    of_text = sum(size for name, size in inside.items() if "attn2.to_k" in name or "attn2.to_v" in name)
    products = 2 * (tokens * (sum(inside.values()) - of_text) * 2 + texts * of_text)  # a text needs no gradient
    attention = 2 * 7 * width * tokens * (tokens + texts)
    assert counted == pytest.approx(blocks * (products + attention), rel=0.06)


def test_both_experts_take_turns() -> None:
    work = Work(caps.OF_TWO, small=True, rank=4)
    built = ours(work, choices_of(EAGER), CPU, Way(switch_every=1))
    parts = []
    for _ in range(2):
        timed(built, CPU, 0, 1)
        parts.append(built.training.state.transformer)
    built.close()
    assert parts[0] is not parts[1]


def test_other_layers_and_ranks() -> None:
    work = Work("HunyuanVideo", rank=2, layers=caps.ATTENTION, small=True)
    family = opened(work.model, small=True)
    with random_weights(family, CPU, CPU):
        lora = lora_on(family.load_transformer(torch.bfloat16), work, family)
    assert {name.rpartition("attn.")[2] for name in lora.layers} == set(caps.ATTENTION)


@pytest.mark.parametrize("name", dict.fromkeys(work.model for work, *_ in SPEEDS.values()))
def test_every_model_steps_in_both_ways(name: str) -> None:
    found = step.rows(Work(name, small=True, rank=4), [PLAIN, EAGER], CPU, steps=1)
    assert [row.setting for row in found] == [PLAIN, EAGER]


def test_a_failing_row_does_not_cost_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    found = step.rows(WAN, ["fp9 eager full", PLAIN], CPU, steps=1)
    assert [row.setting for row in found] == [PLAIN] and "Error" in capsys.readouterr().out


def test_copies_are_timed() -> None:
    assert all(speed > 0 for speed in offload.bandwidth(CPU, 1 << 20).values())


def test_likeness_of_gradients() -> None:
    base = {"a": torch.tensor([1.0, 0.0]), "b": torch.tensor([0.0, 2.0])}
    turned = {"a": torch.tensor([0.0, 1.0]), "b": torch.tensor([0.0, 2.0])}
    assert loss_parity.likeness(base, base, 0.0).cosine == pytest.approx(1)
    found = loss_parity.likeness(base, turned, 0.0)
    assert found.cosine == pytest.approx(0.8) and found.least == pytest.approx(0) and found.layer == "a"


def test_curves_show_every_run() -> None:
    picture = loss_parity.curves({"bf16": [1.0, 0.5, 0.4], "nf4": [1.0, 0.6, 0.5]})
    colours = {tuple(colour) for colour in picture.reshape(-1, 3).tolist()}
    assert {loss_parity.COLOURS["bf16"], loss_parity.COLOURS["nf4"]} <= colours


@pytest.mark.parametrize("words", ["fp8 eager full", "int8 eager selective swap 0.5", "nf4 eager offloaded swap 1"])
def test_quantised_models_are_made_and_trained(words: str) -> None:
    base, own = (measured(lambda w=w: ours(WAN, choices_of(w), CPU), CPU, 0, 1).losses for w in (EAGER, words))
    assert own == pytest.approx(base, rel=0.01) and own != base


def test_the_planner_is_asked() -> None:
    said = predicted(WAN, choices_of(EAGER), CPU)
    assert said.peak_gib > 0 and said.seconds > 0 and said.compile_seconds == 0
    assert planned(WAN, CPU, cap=7.0, weights="nf4").weights == "nf4" and not planned(WAN, CPU, compiler=False).compile


@pytest.mark.parametrize("row", caps.ROWS.values(), ids=str)
def test_the_planner_finds_a_way_under_every_cap(row: caps.Capped) -> None:
    for compiler in (True, False) if row.gb in caps.WITHOUT_COMPILER else (True,):
        assert predicted(row.work, planned(row.work, CPU, row.cap, compiler=compiler), CPU).peak_gib < row.cap
