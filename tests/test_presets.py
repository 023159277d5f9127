"""Presets: the table's numbers, each family's rules, and a job that is accepted whatever is chosen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tiny.wan import write_tiny_wan
from trainer.__main__ import main
from trainer.data.buckets import rounded_buckets
from trainer.errors import UserError
from trainer.job import Bucket, ComputeSettings, TrainingJob
from trainer.models import FAMILIES, family_class, known_models
from trainer.models.base import FamilySpec, FrameRule
from trainer.presets import GOALS, TABLE, Goal, memory_here, nearest_count, preset

# Seed 001's table: batch, frames and size of each card; where a model takes frames of 4n+1, the nearest.
SEED_001 = {8: (1, 9, 384), 16: (2, 17, 512), 24: (4, 17, 512), 48: (8, 33, 768)}


def spec_of(family: str, variant: str) -> FamilySpec:
    names = list(family_class(family).layout.variants)
    return known_models(family)[1 + names.index(variant)].spec


@pytest.mark.parametrize("goal", ["character", "style"])
@pytest.mark.parametrize("memory", SEED_001)
@pytest.mark.parametrize("variant", ["t2v-1.3b", "t2v-14b", "t2v-a14b", "i2v-a14b", "ti2v-5b"])
def test_sizes_are_those_of_the_table(variant: str, memory: int, goal: Goal) -> None:
    batch, frames, side = SEED_001[memory]
    made = preset(spec_of("wan", variant), goal, memory)
    assert (made.batch_size, made.sizes[0]) == (batch, (frames, side, side))
    assert {size[0] for size in made.sizes} == {frames}
    assert [height * width / side**2 for _, height, width in made.sizes] == pytest.approx([1, 1, 1], rel=0.03)
    assert any(height < width for _, height, width in made.sizes) and any(height > width for _, height, width in made.sizes)


@pytest.mark.parametrize(
    ("memory", "batch", "size"), [(8, 1, (17, 272, 272)), (16, 1, (33, 512, 512)), (24, 2, (33, 512, 512)), (48, 4, (65, 768, 768))]
)
def test_motions_have_twice_the_frames_for_half_the_batch_or_area(memory: int, batch: int, size: tuple[int, int, int]) -> None:
    made = preset(spec_of("wan", "t2v-14b"), "motion", memory)
    assert (made.batch_size, made.sizes[0]) == (batch, size)
    assert {count for count, _, _ in made.sizes} == {size[0], SEED_001[memory][1]}, "shorter clips have the table's frames"


def test_goals_differ_as_other_trainers_have_it() -> None:
    made = {goal: preset(spec_of("wan", "t2v-14b"), goal, 24) for goal in GOALS}
    values = {goal: (p.rank, p.learning_rate, p.steps, p.timesteps, p.shift) for goal, p in made.items()}
    assert values == {
        "character": (16, 2e-4, 1500, "logit-normal", 0.0),
        "style": (32, 1e-4, 2000, "uniform", 0.0),
        "motion": (32, 5e-5, 3000, "logit-normal", 5.0),
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_every_model_goal_and_card_makes_a_job(family: str) -> None:
    for spec in [model.spec for model in known_models(family)]:
        assert set(spec.goals) <= set(GOALS), "a goal of this model's own that there is none of"
        for goal in GOALS:
            for memory in TABLE:
                made = preset(spec, goal, memory)
                job = TrainingJob.parse(made.parts())
                assert [str(bucket) for bucket in job.dataset.buckets] == made.buckets.split("\n")
                assert rounded_buckets(job.dataset.buckets, spec, windowed=False) == (job.dataset.buckets, []), (
                    "already what the model takes"
                )
                taken = job.adapter.rank, job.optimizer.learning_rate, job.objective.timesteps, job.objective.shift
                assert taken == (made.rank, made.learning_rate, made.timesteps, made.shift)
                assert (job.schedule.steps, job.schedule.batch_size) == (made.steps, made.batch_size)
                assert 1 <= made.batch_size <= TABLE[memory].batch
                assert made.sizes[0] == max(made.sizes, key=lambda size: size[0])
                assert made.sizes[0][0] <= max(spec.default_bucket[0], spec.frame_rule.shortest)


def test_more_memory_never_takes_less() -> None:
    for family in FAMILIES:
        for spec in [model.spec for model in known_models(family)]:
            for goal in GOALS:
                taken = []
                for memory in TABLE:
                    made = preset(spec, goal, memory)
                    frames, height, width = made.sizes[0]
                    taken.append(made.batch_size * frames * height * width)
                assert taken == sorted(taken), (family, spec.variant, goal)


def test_a_model_of_images_has_one_frame_and_says_that_it_learns_no_motion() -> None:
    spec = spec_of("hidream", "i1-full")
    assert {size[0] for memory in TABLE for size in preset(spec, "motion", memory).sizes} == {1}
    assert preset(spec, "style", 24).sizes[0] == (1, 1024, 1024), "its own size, which the table's frames leave room for"
    assert preset(spec, "style", 8).sizes[0] == (1, 544, 544)
    assert "no motion" in " ".join(preset(spec, "motion", 24).notes) and not preset(spec, "style", 24).notes


def test_a_model_of_one_size_keeps_it_with_a_smaller_batch() -> None:
    made = preset(spec_of("cogvideox", "5b-i2v"), "character", 24)
    assert made.sizes == ((17, 480, 720),) and made.batch_size == 3


def test_a_model_of_sections_has_whole_ones() -> None:
    spec = known_models("framepack")[0].spec
    found = {(goal, memory): preset(spec, goal, memory) for goal in GOALS for memory in TABLE}
    assert {size[0] for made in found.values() for size in made.sizes} == {37, 73}
    assert found["motion", 48].sizes[0] == (73, 768, 768)
    assert found["motion", 48].batch_size == found["character", 48].batch_size, "a section at a time is trained, however many there are"
    assert found["character", 24].batch_size == 2, "a section is longer than the table's clips"


def test_experts_that_take_turns_have_twice_the_steps() -> None:
    spec = spec_of("wan", "t2v-a14b")
    both, one = preset(spec, "style", 24), preset(spec, "style", 24, experts=1)
    assert (both.steps, one.steps) == (4000, 2000)
    assert "experts" in " ".join(both.notes) and not one.notes


def test_a_shift_that_is_higher_already_stays() -> None:
    assert preset(spec_of("wan", "flf2v-14b"), "motion", 24).shift == 0
    assert preset(spec_of("wan", "i2v-14b-480p"), "motion", 24).shift == 5


@pytest.mark.parametrize(("memory", "row"), [(4, 8), (8, 8), (12, 8), (15.9, 8), (17.2, 16), (25.7, 24), (32, 24), (141, 48)])
def test_a_card_between_two_rows_has_the_lower(memory: float, row: int) -> None:
    assert preset(spec_of("wan", "t2v-14b"), "style", memory).memory == row


def test_without_a_card_the_presets_are_those_of_24_gb() -> None:
    assert memory_here(ComputeSettings(device="cpu")) == 24


def test_an_unknown_goal_is_refused() -> None:
    with pytest.raises(UserError, match=r"goal: 'styles' is unknown\. Did you mean 'style'"):
        preset(spec_of("wan", "t2v-14b"), "styles", 24)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("rule", "frames", "own", "taken"),
    [
        (FrameRule(4), 8, 81, 9),
        (FrameRule(4), 32, 17, 17),
        (FrameRule(6), 16, 37, 13),  # as near as 19
        (FrameRule(8), 8, 49, 9),
        (FrameRule(4, 5), 4, 49, 5),
        (FrameRule(36, 1, shortest=37), 16, 145, 37),
        (FrameRule(36, 1, shortest=37), 64, 145, 73),
        (FrameRule(1, 1, most=1), 32, 1, 1),
    ],
)
def test_frames_go_to_the_nearest_count(rule: FrameRule, frames: int, own: int, taken: int) -> None:
    assert nearest_count(rule, frames, own) == taken and rule.allows(taken)


def test_the_command_tells_and_writes_what_it_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "job.json"
    assert main(["preset", "wan/t2v-14b", "--goal", "motion", "--memory", "24", "--out", str(target)]) == 0
    told = capsys.readouterr().out
    title, *rows = told.splitlines()
    assert title == "motion on wan t2v-14b, with a card of 24 GB"
    set_values = {row[:15].strip(): row[16:] for row in rows}
    assert set_values.items() >= {"rank": "32", "learning rate": "5e-05", "steps": "3000", "batch size": "2", "shift": "5"}.items()
    assert str(target) in told
    job = TrainingJob.load(target)
    assert job.dataset.buckets[0] == Bucket(frames=33, height=512, width=512) and job.schedule.batch_size == 2
    assert main(["preset", "wan/t2v-14b", "--goal", "style", "--out", str(target)]) == 1
    assert "is there already" in capsys.readouterr().err and TrainingJob.load(target) == job


def test_the_command_takes_a_folder_and_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, source = write_tiny_wan(tmp_path / "tiny"), tmp_path / "other.json"
    assert (
        main(["preset", "tiny", "--models", str(tmp_path), "--goal", "style", "--memory", "8", "--output", str(tmp_path / "made.json")])
        == 0
    )
    assert json.loads((tmp_path / "made.json").read_text())["model"] == {"source": "tiny"}
    first = capsys.readouterr().out.splitlines()[:-1]
    source.write_text(json.dumps({"model": {"source": "wan/t2v-1.3b"}}))
    assert main(["preset", str(source), "--goal", "style", "--memory", "8", "--output", str(tmp_path / "named.json")]) == 0
    assert capsys.readouterr().out.startswith("style on wan t2v-1.3b") and "model" not in json.loads((tmp_path / "named.json").read_text())
    source.write_text(json.dumps({"model": {"source": str(folder)}}))
    assert main(["preset", str(source), "--goal", "style", "--memory", "8"]) == 0
    assert capsys.readouterr().out.splitlines() == first


def test_a_folder_is_meant_before_a_family_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(write_tiny_wan(tmp_path / "wan").parent)
    assert main(["preset", "wan", "--goal", "style", "--memory", "8"]) == 0
    assert capsys.readouterr().out.startswith("style on wan ")


@pytest.mark.parametrize(
    ("model", "told"),
    [("wan", "is a family of several models"), ("wan/t2v", "'t2v' is not one of its variants"), ("nowhere", "was not found")],
)
def test_the_command_says_which_models_there_are(model: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preset", model, "--goal", "style"]) == 1
    assert told in capsys.readouterr().err
