"""What the sampler promises: nothing dropped, sizes never mixed, the same examples however the batch is split."""

import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainer.data.dataset import Item
from trainer.data.sampler import Example, Sampler, StepPlan
from trainer.job import Bucket, ScheduleSettings, WindowSettings

SIZES = [Bucket(frames=17, height=48, width=64), Bucket(frames=17, height=64, width=48), Bucket(frames=9, height=48, width=64)]


def make(
    per_size: tuple[int, ...],
    batch: int,
    accumulation: int,
    windows: tuple[int, ...] = (1,),
    repeats: int = 1,
    seed: int = 5,
    **settings: object,
) -> Sampler:
    """A sampler over `per_size` clips of each size, their window counts going round `windows`."""
    items = [
        Item(f"{size}-{n}", Path("x.mp4"), ("",), SIZES[size], windows[(size + n) % len(windows)], repeats, f"{size}-{n}")
        for size, count in enumerate(per_size)
        for n in range(count)
    ]
    window = WindowSettings(size=9, **settings) if windows != (1,) else None
    return Sampler(SimpleNamespace(items=items, windows=window), batch, accumulation, seed)


def epoch(sampler: Sampler, number: int = 0) -> list[StepPlan]:
    first = number * sampler.steps_per_epoch + 1
    return [sampler.plan(step) for step in range(first, first + sampler.steps_per_epoch)]


def identity(example: Example) -> tuple[str, int, int, int]:
    return example.item.name, example.window, example.position, example.epoch


SPLITS = [((7,), 4, 1), ((7, 3, 1), 4, 1), ((1, 1, 1), 2, 2), ((5, 4, 3), 2, 3), ((2,), 8, 1), ((9, 9), 3, 1)]


@pytest.mark.parametrize(("per_size", "batch", "accumulation"), SPLITS)
@pytest.mark.parametrize("repeats", [1, 3])
def test_an_epoch_sees_every_visit_once_and_with_equal_weight(
    per_size: tuple[int, ...], batch: int, accumulation: int, repeats: int
) -> None:
    sampler = make(per_size, batch, accumulation, repeats=repeats)
    for number in (0, 1):
        plans = epoch(sampler, number)
        assert {plan.epoch for plan in plans} == {number}
        seen = Counter(example.item.name for plan in plans for example in plan.examples)
        assert set(seen.values()) == {repeats} and len(seen) == sum(per_size)
        positions = sorted(example.position for plan in plans for example in plan.examples)
        assert positions == list(range(sum(per_size) * repeats))
        assert len({example.weight for plan in plans for example in plan.examples}) == 1
        assert all(plan.weight == pytest.approx(1) for plan in plans if len(plan.examples) == sampler.group)
        assert sum(len(plan.examples) < sampler.group for plan in plans) <= 1


@pytest.mark.parametrize(("per_size", "batch", "accumulation"), SPLITS)
def test_micro_batches_hold_one_size_and_no_more_than_the_batch(per_size: tuple[int, ...], batch: int, accumulation: int) -> None:
    for plan in epoch(make(per_size, batch, accumulation, windows=(3, 5))):
        for micro in plan.micro_batches:
            assert len({example.item.size for example in micro}) == 1
            assert 1 <= len(micro) <= batch


@pytest.mark.parametrize("settings", [{}, {"grouping": "independent"}, {"per_clip": 2}, {"grouping": "independent", "per_clip": 2}])
@pytest.mark.parametrize("windows", [(1,), (3, 5, 1)])
def test_the_split_into_batches_does_not_change_a_step(windows: tuple[int, ...], settings: dict) -> None:
    plans = [epoch(make((5, 3, 2), batch, 4 // batch, windows=windows, **settings), 1) for batch in (1, 2, 4)]
    for one, two, four in zip(*plans, strict=True):
        weights = [{identity(example): example.weight for example in plan.examples} for plan in (one, two, four)]
        assert weights[0] == weights[1] == weights[2]


def test_any_step_can_be_asked_for_at_any_time() -> None:
    first = make((5, 3, 2), 2, 1, windows=(3, 5), per_clip=2)
    trail = [first.plan(step) for step in range(1, 40)]
    assert trail[25] == make((5, 3, 2), 2, 1, windows=(3, 5), per_clip=2).plan(26)
    assert trail[3] == first.plan(4)


def test_order_depends_on_seed_and_epoch() -> None:
    def order(sampler: Sampler, number: int) -> list[int]:
        return [example.position for plan in epoch(sampler, number) for example in plan.examples]

    sampler = make((20,), 1, 1)
    assert len({tuple(order(sampler, number)) for number in range(5)}) == 5
    assert order(sampler, 0) != order(make((20,), 1, 1, seed=6), 0)


def test_full_groups_hold_one_size_where_they_can() -> None:
    plans = epoch(make((8, 8), 4, 1))
    assert [len(plan.micro_batches) for plan in plans] == [1] * 4


def test_seven_clips_of_seven_sizes_all_train() -> None:
    sizes = [Bucket(frames=17, height=16 * n, width=64) for n in range(1, 8)]
    items = [Item(str(size), Path("x"), ("",), size, 1, 1, str(size)) for size in sizes]
    sampler = Sampler(SimpleNamespace(items=items, windows=None), 4, 1, 0)
    plans = epoch(sampler)
    assert sampler.steps_per_epoch == 2 and sum(len(plan.examples) for plan in plans) == 7
    assert sampler.effective_batch == "4 clips"


def test_windows_in_one_step_share_their_clips_weight() -> None:
    sampler = make((4,), 2, 2, windows=(17, 5))
    assert sampler.effective_batch == "4 clips × 5 to 17 windows" and sampler.steps_per_epoch == 1
    (plan,) = epoch(sampler)
    assert len(plan.examples) == 2 * (17 + 5) and plan.weight == pytest.approx(1)
    for name in {example.item.name for example in plan.examples}:
        mine = [example for example in plan.examples if example.item.name == name]
        assert sorted(example.window for example in mine) == list(range(mine[0].item.windows))
        assert sum(example.weight for example in mine) == pytest.approx(1 / 4)
    assert make((4,), 1, 4, windows=(17,)).effective_batch == "4 clips × 17 windows"


def test_drawn_windows_are_distinct_and_change_between_visits() -> None:
    sampler = make((3,), 1, 1, windows=(9,), per_clip=3)
    assert sampler.effective_batch == "1 clip × 3 windows"
    drawn = set()
    for number in range(4):
        for plan in epoch(sampler, number):
            windows = [example.window for example in plan.examples]
            assert len(set(windows)) == 3 and windows == sorted(windows)
            assert plan.weight == pytest.approx(1)
            drawn.add(tuple(windows))
    assert len(drawn) > 4


def test_independent_windows_weigh_one_in_the_mean_and_clips_the_same() -> None:
    sampler = make((3,), 1, 1, windows=(17, 5, 2), grouping="independent")
    assert sampler.steps_per_epoch == 24 and sampler.effective_batch == "1 window"
    examples = [example for plan in epoch(sampler) for example in plan.examples]
    assert len({identity(example) for example in examples}) == 24
    assert sum(example.weight for example in examples) / 24 == pytest.approx(1)
    per_clip = [sum(example.weight for example in examples if example.position == position) for position in range(3)]
    assert per_clip == pytest.approx([8.0] * 3)


@pytest.mark.parametrize("settings", [{}, {"grouping": "independent"}, {"per_clip": 2}])
@pytest.mark.parametrize("windows", [(1,), (3, 5, 1)])
def test_weights_keep_their_ratios_and_the_mean_stays_a_mean(windows: tuple[int, ...], settings: dict) -> None:
    weights = {"0-0": 1.0, "0-1": 4.0, "1-0": 0.5, "2-0": 1.0}
    plain = make((2, 1, 1), 2, 1, windows=windows, repeats=2, **settings)
    items = [replace(item, weight=weights[item.name]) for item in {visit.name: visit for visit in plain._visits}.values()]
    weighted = Sampler(SimpleNamespace(items=items, windows=None if windows == (1,) else WindowSettings(size=9, **settings)), 2, 1, 5)
    before, after = ([example for plan in epoch(sampler) for example in plan.examples] for sampler in (plain, weighted))
    assert [identity(example) for example in before] == [identity(example) for example in after]
    for a, b in zip(after, before, strict=True):
        assert a.weight == pytest.approx(b.weight * weights[a.item.name] / (6.5 / 4))
    assert sum(example.weight for example in after) == pytest.approx(sum(example.weight for example in before))


def test_weights_that_are_all_alike_change_nothing() -> None:
    plain = make((3, 2), 2, 1)
    items = [replace(item, weight=0.1) for item in plain._visits]
    weighted = Sampler(SimpleNamespace(items=items, windows=None), 2, 1, 5)
    pairs = zip(epoch(plain), epoch(weighted), strict=True)
    assert all([e.weight for e in a.examples] == pytest.approx([e.weight for e in b.examples]) for a, b in pairs)


PIECES = {"items": 4, "windows": (3, 1, 2, 5)}


def piecewise(world: int = 1, rank: int = 0) -> Sampler:
    items = [
        Item(f"c{n}", Path("x"), ("",), SIZES[n % 2], windows, 1, f"k{n}", weight=1.0 + n, pieces=True)
        for n, windows in enumerate(PIECES["windows"])
    ]
    return Sampler(SimpleNamespace(items=items, windows=None), 2, 1, 7, rank=rank, world=world)


def test_pieces_are_examples_that_count_as_much_as_a_clip() -> None:
    sampler = piecewise()
    examples = [example for plan in epoch(sampler) for example in plan.examples]
    assert sampler.steps_per_epoch == 6 and sampler.effective_batch == "2 pieces" and len({identity(e) for e in examples}) == 11
    assert sum(example.weight for example in examples) * 2 / 11 == pytest.approx(1)
    by_clip = {example.item.name: example.weight for example in examples}
    assert by_clip["c3"] == pytest.approx(4 * by_clip["c0"])


@pytest.mark.parametrize("world", [2, 3, 5])
@pytest.mark.parametrize("make_one", [lambda **r: piecewise(**r), lambda **r: ranked(**r)], ids=["pieces", "windows and variants"])
def test_ranks_share_the_steps_of_one(make_one, world: int) -> None:
    alone, ranks = make_one(), [make_one(world=world, rank=rank) for rank in range(world)]
    assert {sampler.steps_per_epoch for sampler in ranks} == {alone.steps_per_epoch}
    for step in range(1, 2 * alone.steps_per_epoch + 1):
        whole, parts = alone.plan(step), [sampler.plan(step) for sampler in ranks]
        told = Counter((identity(e), e.item.key, e.weight) for plan in parts for e in plan.examples)
        assert told == Counter((identity(e), e.item.key, e.weight) for e in whole.examples)
        assert sum(plan.weight for plan in parts) == pytest.approx(whole.weight)
        counts = [len(plan.examples) for plan in parts]
        assert max(counts) - min(counts) <= 1
        assert all(len({e.item.size for e in batch}) == 1 and len(batch) <= 2 for plan in parts for batch in plan.micro_batches)


def ranked(world: int = 1, rank: int = 0) -> Sampler:
    items = [Item(f"c{n}", Path("x"), ("",), SIZES[n % 3], 1 + n % 3, 2, f"k{n}", variants=(f"k{n}b", f"k{n}c")) for n in range(7)]
    return Sampler(SimpleNamespace(items=items, windows=WindowSettings(size=9)), 2, 2, 7, rank=rank, world=world)


def test_each_visit_sees_one_variant_drawn_by_key() -> None:
    seen = {number: {} for number in range(12)}
    for number in seen:
        for plan in epoch(ranked(), number):
            for example in plan.examples:
                assert example.item.key.startswith(example.item.name.replace("c", "k"))
                seen[number].setdefault(example.position, set()).add(example.item.key)
    assert all(len(keys) == 1 for visits in seen.values() for keys in visits.values())  # a clip's windows are of one variant
    assert {key for visits in seen.values() for keys in visits.values() for key in keys} == {
        f"k{n}{variant}" for n in range(7) for variant in ("", "b", "c")
    }


@pytest.mark.parametrize(("multiplier", "video"), [(1.0, 4), (0.5, 2), (0.01, 1), (2.0, 8)])
def test_videos_have_a_batch_size_of_their_own(multiplier: float, video: int) -> None:
    still = Bucket(frames=1, height=48, width=64)
    items = [Item(f"{size}-{n}", Path("x"), ("",), size, 1, 1, f"{size}-{n}") for size in (still, SIZES[0]) for n in range(16)]
    schedule = ScheduleSettings(batch_size=4, accumulation=2, seed=3, video_batch_size_multiplier=multiplier)
    plain = Sampler(SimpleNamespace(items=items, windows=None), 4, 2, 3)
    sampler = Sampler.scheduled(SimpleNamespace(items=items, windows=None), schedule)
    for before, after in zip(epoch(plain), epoch(sampler), strict=True):
        assert {identity(e): e.weight for e in before.examples} == {identity(e): e.weight for e in after.examples}
        for batch in after.micro_batches:
            assert len(batch) == (4 if batch[0].item.size == still else video)


def sectioned(counts: tuple[int, ...], batch: int = 2, accumulation: int = 1, **ranks: int) -> Sampler:
    """Clips of so many sections each, of sizes that differ in their frames."""
    items = [
        Item(f"c{n}", Path("x"), ("",), Bucket(frames=36 * count + 1, height=48, width=64), count, 1, f"k{n}", pieces=True, sections=count)
        for n, count in enumerate(counts)
    ]
    return Sampler(SimpleNamespace(items=items, windows=None), batch, accumulation, 7, **ranks)


@pytest.mark.parametrize(("batch", "accumulation"), [(1, 1), (2, 1), (3, 2), (8, 1)])
def test_sections_are_examples_and_batches_hold_one_of_each_clip(batch: int, accumulation: int) -> None:
    counts = (3, 3, 3, 1, 5)
    sampler = sectioned(counts, batch, accumulation)
    for number in range(3):
        plans = epoch(sampler, number)
        seen = Counter((example.item.name, example.window) for plan in plans for example in plan.examples)
        assert seen == Counter((f"c{n}", section) for n, count in enumerate(counts) for section in range(count))
        assert len({example.weight for plan in plans for example in plan.examples}) == 1
        batches = [micro for plan in plans for micro in plan.micro_batches]
        assert all(len({(e.item.size, e.window) for e in micro}) == 1 and len(micro) <= batch for micro in batches)
        assert batch == 1 or any(len(micro) > 1 for micro in batches)
    assert sampler.effective_batch == (f"{min(batch * accumulation, 15)} section" + "s" * (batch > 1))


def test_sections_of_pieces_count_from_each_pieces_beginning() -> None:
    item = Item("c", Path("x"), ("",), Bucket(frames=73, height=48, width=64), 6, 1, "k", pieces=True, sections=2)  # three pieces
    sampler = Sampler(SimpleNamespace(items=[item], windows=None), 3, 1, 7)
    batches = [tuple(sorted(e.window for e in micro)) for plan in epoch(sampler) for micro in plan.micro_batches]
    assert sorted(batches) == [(0, 2, 4), (1, 3, 5)]


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_sections(world: int) -> None:
    alone, ranks = sectioned((3, 3, 2), 2, 2), [sectioned((3, 3, 2), 2, 2, world=world, rank=rank) for rank in range(world)]
    for step in range(1, alone.steps_per_epoch + 1):
        parts = [sampler.plan(step) for sampler in ranks]
        assert Counter(identity(e) for plan in parts for e in plan.examples) == Counter(map(identity, alone.plan(step).examples))
        assert all(len({e.kind for e in micro}) == 1 for plan in parts for micro in plan.micro_batches)


# What these samplers planned before there were sections: resuming an old run must see the same examples.
PLANNED = {
    "sizes": (lambda: make((5, 4, 3), 2, 3), "01874293f9c5d0a3"),
    "windows": (lambda: make((5, 3, 2), 2, 2, windows=(3, 5, 1)), "efc54e47954a6261"),
    "independent": (lambda: make((5, 3, 2), 2, 2, windows=(3, 5, 1), grouping="independent", per_clip=2), "d33bf6f86b0b9c24"),
    "pieces": (piecewise, "4e3549f8ec1db890"),
    "rank": (lambda: ranked(world=3, rank=1), "d0c923625e803c78"),
}


@pytest.mark.parametrize("name", PLANNED)
def test_plans_stay_what_they_were(name: str) -> None:
    made, digest = PLANNED[name]
    sampler = made()
    told = [
        [[(*identity(e), e.weight, e.item.key) for e in batch] for batch in plan.micro_batches]
        for n in range(3)
        for plan in epoch(sampler, n)
    ]
    assert hashlib.sha256(repr(told).encode()).hexdigest()[:16] == digest
