"""Working ahead in threads: the same values in the same order, no more than allowed, and nothing left running."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing

import pytest

from trainer.data.prefetch import ahead
from trainer.errors import Interrupted


def running() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "clip decoding"]


def counting(number: int, made: list[tuple[int, int]], size: int = 3) -> Callable[..., Generator[tuple[int, int], None, None]]:
    def source(check: Callable[[], None]) -> Generator[tuple[int, int], None, None]:
        for value in range(size):
            check()
            made.append((number, value))
            yield number, value

    return source


def nothing() -> None:
    """Never stops."""


@pytest.mark.parametrize("threads", [0, 1, 3, 20])
def test_values_come_in_order(threads: int) -> None:
    made: list[tuple[int, int]] = []
    with closing(ahead([counting(n, made) for n in range(6)], threads, nothing)) as lanes:
        got = [list(values) for values in lanes]
    assert got == [[(n, value) for value in range(3)] for n in range(6)] and sorted(made) == sorted(
        value for values in got for value in values
    )
    assert not running()


def test_only_so_much_is_made_ahead() -> None:
    made: list[tuple[int, int]] = []
    with closing(ahead([counting(n, made, 50) for n in range(9)], 2, nothing)) as lanes:
        next(next(lanes))
        time.sleep(0.3)
        assert {number for number, _ in made} == {0, 1, 2}
        assert [sum(number == n for number, _ in made) for n in range(3)] == [3, 2, 2]  # read, kept, and about to be handed over
    assert not running()


def test_what_goes_wrong_is_raised_where_it_is_read_and_the_others_go_on() -> None:
    def broken(check: Callable[[], None]) -> Generator[int, None, None]:
        yield 1
        raise ValueError("broken")

    def whole(check: Callable[[], None]) -> Generator[int, None, None]:
        yield 2

    with closing(ahead([broken, whole], 2, nothing)) as lanes:
        values = next(lanes)
        assert next(values) == 1
        with pytest.raises(ValueError, match="broken"):
            next(values)
        assert list(next(lanes)) == [2]


def test_a_source_that_is_not_read_to_its_end_is_left() -> None:
    made: list[tuple[int, int]] = []
    with closing(ahead([counting(n, made, 1000) for n in range(3)], 1, nothing)) as lanes:
        assert [next(values) for values in lanes] == [(0, 0), (1, 0), (2, 0)]
    assert len(made) < 30 and not running()


def test_a_stop_request_ends_all_threads_within_one_frame() -> None:
    def endless(check: Callable[[], None]) -> Generator[int, None, None]:
        while True:
            check()
            time.sleep(0.01)
        yield 0

    calls = []

    def cancelled() -> None:
        calls.append(1)
        if len(calls) > 2:
            raise Interrupted

    start = time.monotonic()
    with pytest.raises(Interrupted), closing(ahead([endless] * 4, 2, cancelled)) as lanes:
        next(next(lanes))
    assert time.monotonic() - start < 2 and not running()
