"""Micro-batches made ahead: the same to the bit, in order, and a thread that ends whatever happens."""

import threading
from pathlib import Path

import pytest
import torch

from trainer.data.dataset import Item
from trainer.data.sampler import Example
from trainer.errors import UserError, fail
from trainer.job import Bucket
from trainer.objectives.base import MicroBatch
from trainer.objectives.prefetch import Prefetched

CPU, LAST = torch.device("cpu"), 5


class Numbered:
    """Two micro-batches a step, whose tensors tell which they are; lists those made, and by which thread."""

    def __init__(self, bad=None):
        self.made, self.threads, self.bad = [], set(), bad

    def collect(self, step):
        return (self.batch(step, part) for part in range(2))

    def batch(self, step, part):
        self.threads.add(threading.current_thread().name)
        if (step, part) == self.bad:
            raise fail("cache", "cannot be read.")
        self.made.append((step, part))
        number = torch.tensor([float(10 * step + part)])
        item = Item("clip", Path("clip"), ("",), Bucket(frames=1, height=16, width=16), 1, 1, "clip")
        return MicroBatch({"latents": number}, {"text": number}, number, number, number, [Example(item, 0, 1.0, 0, 0)])

    def loss(self, transformer, batch):
        return batch.noise


@pytest.fixture(autouse=True)
def no_thread_left():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) == before


def taken(objective, step):
    return [int(batch.noise) for batch in objective.collect(step)]


def test_the_same_in_order_and_one_ahead():
    source = Numbered()
    with Prefetched(source, CPU, LAST) as objective:
        batches = objective.collect(1)
        next(batches)
        objective._next.result()
        assert source.made == [(1, 0), (1, 1)]
        assert len(list(batches)) == 1
        objective._next.result()
        assert source.made == [(1, 0), (1, 1), (2, 0)], "the first of the next step is made while this one's optimizer works"
        for step in range(2, LAST + 1):
            assert taken(objective, step) == [10 * step, 10 * step + 1]
    assert source.made == [(step, part) for step in range(1, LAST + 1) for part in range(2)], "each once, and none after the last step"
    assert threading.current_thread().name not in source.threads


def test_any_step_may_be_asked_for_and_one_that_was_left_is_made_again():
    with Prefetched(Numbered(), CPU, LAST) as objective:
        assert taken(objective, 3) == [30, 31]
        next(objective.collect(4))
        assert taken(objective, 4) == [40, 41]
        assert taken(objective, 2) == [20, 21]


def test_an_error_of_the_thread_is_raised_where_the_micro_batch_is_asked_for():
    source = Numbered(bad=(2, 1))
    with Prefetched(source, CPU, LAST) as objective:
        assert taken(objective, 1) == [10, 11]
        batches = objective.collect(2)
        assert int(next(batches).noise) == 20
        with pytest.raises(UserError, match=r"cannot be read"):
            next(batches)
        with pytest.raises(UserError, match=r"cannot be read"):
            taken(objective, 2)
        source.bad = None
        assert taken(objective, 2) == [20, 21]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_the_thread_ends_when_training_breaks_off(error):
    with pytest.raises(error), Prefetched(Numbered(), CPU, LAST) as objective:
        for _ in objective.collect(1):
            raise error


def test_the_thread_ends_when_nothing_was_asked_for():
    with Prefetched(Numbered(), CPU, LAST):
        pass
