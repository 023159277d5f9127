"""Values made in threads ahead of their reader: in order, bounded, and stopped when the reader stops."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from itertools import islice
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Generic, TypeVar

T = TypeVar("T")
Check = Callable[[], None]
Source = Callable[[Check], Generator[T, None, None]]  # makes values; calls the check between small units of work

_POLL = 0.05  # seconds between looks at a stop request


def ahead(sources: Iterable[Source[T]], threads: int, check: Check) -> Generator[Iterator[T], None, None]:
    """For each source, in order, the values that it makes; up to `threads` sources after the one being read work ahead.

    A source that works ahead keeps at most one value that is not read yet, and one that it is about to hand over. What
    a source raises is raised where its values are read. `check` is called in the reader's thread while it waits, and may
    raise to stop. Closing this generator ends all threads. Without threads everything is made when it is read.
    """
    if not threads:
        for source in sources:
            with closing(source(check)) as values:
                yield values
        return
    rest, lanes = iter(sources), deque[_Lane[T]]()
    try:
        lanes.extend(_Lane(source) for source in islice(rest, threads + 1))
        while lanes:
            yield lanes[0].values(check)
            lanes.popleft().end()
            lanes.extend(_Lane(source) for source in islice(rest, 1))
    finally:
        for lane in lanes:
            lane.stopped.set()
        for lane in lanes:
            lane.end()


class _Stopped(Exception):
    """The reader wants no more."""


class _Lane(Generic[T]):
    """A source at work in its own thread."""

    def __init__(self, source: Source[T]) -> None:
        self.stopped = Event()
        self._queue: Queue[tuple[T] | BaseException | None] = Queue(maxsize=1)  # a value, what went wrong, or the end
        self._thread = Thread(target=self._work, args=(source,), name="clip decoding", daemon=True)
        self._thread.start()

    def values(self, check: Check) -> Iterator[T]:
        """The source's values as they come."""
        while True:
            try:
                item = self._queue.get(timeout=_POLL)
            except Empty:
                check()
                continue
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item[0]

    def end(self) -> None:
        """Stops the source, if it still works, and waits for its thread."""
        self.stopped.set()
        self._thread.join()

    def _work(self, source: Source[T]) -> None:
        with suppress(_Stopped):
            try:
                with closing(source(self._go_on)) as values:
                    for value in values:
                        self._hand_over((value,))
                self._hand_over(None)
            except _Stopped:
                raise
            except BaseException as error:
                self._hand_over(error)

    def _go_on(self) -> None:
        if self.stopped.is_set():
            raise _Stopped

    def _hand_over(self, item: tuple[T] | BaseException | None) -> None:
        while True:
            self._go_on()
            with suppress(Full):
                self._queue.put(item, timeout=_POLL)
                return
