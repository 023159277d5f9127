"""Typed events of a run; the JSONL log of them is what the canvas, the command line and tests all read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from .errors import Interrupted

UNDONE = ("step", "sample", "checkpoint")  # events that a later `resumed` takes back
Request = Literal["stop", "cancel", "sample", "save"]


@dataclass
class Event:
    """Base of all events: `run` is the run id, `time` seconds since the epoch, `index` the line in the run's log."""

    type: ClassVar[str] = ""
    run: str = field(default="", kw_only=True)
    time: float = field(default_factory=time.time, kw_only=True)
    index: int = field(default=-1, kw_only=True)

    def as_dict(self) -> dict[str, object]:
        """The event as JSON-ready dict, its `type` first."""
        return {"type": self.type, **asdict(self)}


@dataclass
class Phase(Event):
    """A new part of the run began: "load", "prepare", "train", "sample"."""

    type = "phase"
    name: str
    detail: str = ""


@dataclass
class Plan(Event):
    """What the run is expected to take, told before it loads its model: seconds, and GB (2^30 bytes) of the card and of the host.

    `table` is all of it in lines of text.
    """

    type = "plan"
    step_seconds: float
    compile_seconds: float
    run_seconds: float
    training: float
    sampling: float
    host: float
    table: str


@dataclass
class Progress(Event):
    """Progress inside a phase; `seconds_left` is None while unknown."""

    type = "progress"
    done: int
    total: int
    unit: str
    seconds_left: float | None = None


@dataclass
class Step(Event):
    """One optimizer step: `loss` is the true mean loss, `seconds` the mean duration of late, `peak_gib` device memory so far.

    `expert` is the one that was trained, of models with several.
    """

    type = "step"
    step: int
    total: int
    loss: float
    lr: float
    grad_norm: float
    seconds: float
    peak_gib: float
    seconds_left: float | None = None
    expert: str = ""


@dataclass
class MemoryUse(Event):
    """The most memory that a part of the run took: "before training", "training", "sampling" or "after"; of the card and the host, GiB."""

    type = "memory"
    part: str
    gib: float
    host_gib: float


@dataclass
class Sample(Event):
    """A sample video was written; `file` is relative to the run folder, `slot` the prompt's place among the prompts."""

    type = "sample"
    step: int
    slot: int
    prompt: str
    file: str


@dataclass
class Checkpoint(Event):
    """A complete checkpoint lies at `folder` (relative to the run folder); `lora` is the exported file's path."""

    type = "checkpoint"
    step: int
    folder: str
    lora: str = ""


@dataclass
class Notice(Event):
    """Something the user should know; `where` names the setting or file."""

    type = "notice"
    level: Literal["info", "warning", "error"]
    text: str
    where: str = ""


@dataclass
class Resumed(Event):
    """The run goes on from this step: readers drop step, sample and checkpoint events after it."""

    type = "resumed"
    step: int


@dataclass
class Finished(Event):
    """The run is complete; `lora` is the exported file's path."""

    type = "finished"
    step: int
    lora: str


@dataclass
class Stopped(Event):
    """The run stopped on request at this step; running again resumes it."""

    type = "stopped"
    step: int


@dataclass
class Failed(Event):
    """The run failed; `text` is the error."""

    type = "failed"
    text: str


class Listener(Protocol):
    """Whoever watches a run: hears every event and may ask for something between units of work."""

    def emit(self, event: Event) -> None:
        """Called with each event after it is in the log; must be quick and must not raise."""

    def request(self) -> Request | None:
        """What the watcher wants now; a request is answered once, "cancel" stays until the run ends."""


class Silent:
    """A listener that hears and asks nothing."""

    def emit(self, event: Event) -> None:
        """Ignores the event."""

    def request(self) -> Request | None:
        """Never asks."""
        return None


class EventLog:
    """Appends events to a run's JSONL file, then hands them to the listener.

    Each line is flushed as it is written, so a reader is never more than one event behind. Until `bind` names
    the run, events reach the listener with an empty run id and index -1 and are kept for the file.
    """

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.run = ""
        self._path: Path | None = None
        self._next = 0
        self.step = 0  # the newest step told of
        self.phase = ""  # the phase that is on
        self._backlog: list[Event] = []
        self._pending: list[Request] = []

    def bind(self, path: Path, run: str) -> None:
        """Names the run and its file; events emitted so far are written first."""
        self._path, self.run = path, run
        written = path.read_bytes() if path.exists() else b""
        if written and not written.endswith(b"\n"):  # killed in the middle of a line, which must not swallow the next
            with path.open("ab") as file:
                file.write(b"\n")
        self._next = len(written.splitlines())
        for event in self._backlog:
            self._write(event)
        self._backlog.clear()

    def emit(self, event: Event) -> None:
        """Stamps run id and index, appends the event, forwards it."""
        if self._path is None:
            self._backlog.append(event)
        else:
            self._write(event)
        if isinstance(event, Step | Resumed):
            self.step = event.step
        elif isinstance(event, Phase):
            self.phase = event.name
        self.listener.emit(event)

    def _write(self, event: Event) -> None:
        assert self._path is not None
        event.run, event.index = self.run, self._next
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event.as_dict()) + "\n")
        self._next += 1

    def notice(self, text: str, where: str = "", level: Literal["info", "warning", "error"] = "warning") -> None:
        """Emits a notice."""
        self.emit(Notice(level, text, where))

    def check(self) -> None:
        """Called between small units of work; raises `Interrupted` on cancel, keeps other requests for `take`."""
        request = self.listener.request()
        if request == "cancel":
            raise Interrupted
        if request is not None and request not in self._pending:
            self._pending.append(request)

    def take(self, request: Request) -> bool:
        """True once for each request of this kind made since the last call."""
        self.check()
        if request in self._pending:
            self._pending.remove(request)
            return True
        return False

    def progress(self, total: int, unit: str) -> Callable[[int], None]:
        """A function to call with the number done; it checks for cancel and emits progress with the time left."""
        start = time.monotonic()

        def report(done: int) -> None:
            self.check()
            elapsed = time.monotonic() - start
            self.emit(Progress(done, total, unit, elapsed / done * (total - done) if done else None))

        return report

    def saying(self, phase: str) -> Callable[[str], None]:
        """A function to call with what is on in a phase, as often as one likes; it checks for cancel and tells what is new."""
        said = ""

        def say(text: str) -> None:
            nonlocal said
            self.check()
            if text != said:
                said = text
                self.emit(Phase(phase, text))

        return say


def read_events(path: Path) -> list[dict[str, Any]]:
    """The log's events in order, with those undone by a later `resumed` dropped."""
    kept: list[dict[str, Any]] = []
    for event in read_log(path):
        last = event.get("step")
        if event["type"] == "resumed" and isinstance(last, int):
            kept = [e for e in kept if e["type"] not in UNDONE or not isinstance(step := e.get("step"), int) or step <= last]
        kept.append(event)
    return kept


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """Every event in the log with its line number as `index`; lines that are no event are passed over."""
    if not path.exists():
        return
    for index, line in enumerate(path.read_bytes().splitlines()):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and isinstance(event.get("type"), str):
            yield {**event, "index": index}
