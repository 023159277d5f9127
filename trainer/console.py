"""A listener for terminals: one progress bar at a time, notices as lines, Ctrl-C as a request to save and stop."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from tqdm import tqdm

from . import events
from .events import Event, Request
from .runfolder import run_name


class Console:
    """Shows a run on the terminal. Used as a context, the first Ctrl-C saves and stops, the second stops at once.

    `runs` is the folder that the run's folder lies in, so that its files can be named.
    """

    def __init__(self, runs: Path = Path()) -> None:
        self._runs = runs
        self._bar: tqdm[Any] | None = None
        self._kind = ""
        self._phase = ""
        self._cancelled = False
        self._before: Any = None

    def __enter__(self) -> Console:
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        signal.signal(signal.SIGINT, self._before)
        self._close()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._cancelled:
            raise KeyboardInterrupt
        self._cancelled = True

    def request(self) -> Request | None:
        """Cancel once Ctrl-C was pressed."""
        return "cancel" if self._cancelled else None

    def emit(self, event: Event) -> None:
        """Shows an event."""
        if isinstance(event, events.Phase):
            self._phase = event.name
        elif isinstance(event, events.Progress):
            self._advance(f"{self._phase} {event.unit}", event.done, event.total)
        elif isinstance(event, events.Step):
            self._advance("train", event.step, event.total, f"loss {event.loss:.4f}, {event.peak_gib:.1f} GiB")
        elif isinstance(event, events.Notice):
            self._line(f"{event.level}: {event.where}: {event.text}" if event.where else f"{event.level}: {event.text}")
        elif isinstance(event, events.MemoryUse):
            self._line(f"memory, {event.part}: {event.gib:.1f} GiB, host {event.host_gib:.1f} GiB")
        elif isinstance(event, events.Plan):
            self._line(event.table)
        elif isinstance(event, events.Resumed):
            self._line(f"resumed after step {event.step}")
        elif isinstance(event, events.Sample):
            self._line(f"sample at step {event.step}: {self._runs / run_name(event.run) / event.file}")
        elif isinstance(event, events.Finished | events.Stopped | events.Failed):
            self._close()

    def _advance(self, kind: str, done: int, total: int, postfix: str = "") -> None:
        if self._bar is None or self._kind != kind:
            self._close()
            self._bar, self._kind = tqdm(total=total, desc=kind, file=sys.stderr, dynamic_ncols=True, initial=max(done - 1, 0)), kind
        self._bar.set_postfix_str(postfix, refresh=False)
        self._bar.update(done - self._bar.n)

    def _line(self, text: str) -> None:
        tqdm.write(text, file=sys.stderr)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
