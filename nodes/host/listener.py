"""What a computation tells while a node runs it: to the node itself and, for a training run, to the browser's monitor."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from contextlib import suppress
from typing import Any

import comfy.model_management
import comfy.utils
from comfy_execution.utils import get_executing_context
from server import PromptServer

from ...trainer.events import Event, Notice, Phase, Progress, Request, Step, Stopped
from .folders import places

EVENT = "video_trainer.event"
TEXT_INTERVAL = 0.25  # seconds between lines of text on a node
_stopped: list[str] = []


class NodeListener:
    """Shows a computation on the node that runs it: a progress bar and a line of text; ComfyUI's Cancel cancels it."""

    def __init__(self) -> None:
        context = get_executing_context()
        assert context is not None, "listeners are made while a node runs"
        self.node, self.prompt = context.node_id, context.prompt_id
        self.notices: list[str] = []
        self._bar = comfy.utils.ProgressBar(1, node_id=self.node)
        self._told = 0.0  # when the line was last written
        self._phase = ""

    def emit(self, event: Event) -> None:
        """Moves the bar and rewrites the line; notices are kept for a result's text."""
        if isinstance(event, Phase):
            self._phase = event.name
            self._told = 0.0  # a new phase is told at once
            self._tell(" · ".join(filter(None, (event.name, event.detail))))
        elif isinstance(event, Progress):
            self._move(event.done, event.total)
            self._tell(f"{self._phase} · {event.done}/{event.total} {event.unit}{_left(event.seconds_left)}")
        elif isinstance(event, Step):
            self._move(event.step, event.total)
            self._tell(f"step {event.step}/{event.total} · loss {event.loss:.4f}{_left(event.seconds_left)}")
        elif isinstance(event, Notice):
            self.notices.append(f"{event.where}: {event.text}" if event.where else event.text)

    def conclude(self, text: str) -> None:
        """Writes the line that stays."""
        self._told = 0.0
        self._tell(text)

    def request(self) -> Request | None:
        """Cancel, once ComfyUI is asked to interrupt."""
        return "cancel" if comfy.model_management.processing_interrupted() else None

    def _move(self, done: int, total: int) -> None:
        try:
            self._bar.update_absolute(done, total)
        except comfy.model_management.InterruptProcessingException:
            # The bar raises on Cancel and clears the flag. A listener must not raise: `request` answers it, after a save.
            comfy.model_management.interrupt_current_processing(True)

    def _tell(self, text: str) -> None:
        if (now := time.monotonic()) - self._told < TEXT_INTERVAL:
            return  # quick steps would keep the browser busy with nothing else
        self._told = now
        server = PromptServer.instance
        server.send_progress_text(text, self.node, server.client_id)


class RunListener(NodeListener):
    """Also sends each event of the run to the browser, and passes on what the browser asks for."""

    def __init__(self, prompt: dict[str, Any] | None, extra: dict[str, Any] | None) -> None:
        super().__init__()
        self.run = ""  # until the run has a folder
        self.requests: deque[Request] = deque()
        self._graph = {"prompt": prompt, **(extra or {})}

    def emit(self, event: Event) -> None:
        """Sends the event; what came before the run had an id is only shown, and is in the log when the browser asks for it."""
        super().emit(event)
        if not event.run:
            return
        if not self.run:
            self.run = event.run
            self._keep_graph()
        message = {"node": self.node, "prompt": self.prompt, "event": json_ready(event.as_dict())}
        PromptServer.instance.send_sync(EVENT, message, PromptServer.instance.client_id)
        if isinstance(event, Stopped):
            _stopped.append(event.run)

    def request(self) -> Request | None:
        """Cancel, or else the oldest unanswered request."""
        return super().request() or (self.requests.popleft() if self.requests else None)

    def _keep_graph(self) -> None:
        from ...trainer.runfolder import find_run

        folder = find_run(places().runs, self.run)
        if folder is not None:
            with suppress(OSError):  # the run itself will tell of a full disk
                (folder.path / "graph.json").write_text(json.dumps(self._graph), encoding="utf-8")


def json_ready(event: dict[str, Any]) -> dict[str, Any]:
    """The event with None for NaN and infinity, which browsers do not read."""
    return {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in event.items()}


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, seconds = divmod(round(seconds), 60)
    return f" · {minutes // 60}:{minutes % 60:02}:{seconds:02} left" if minutes >= 60 else f" · {minutes}:{seconds:02} left"


def stopped_runs() -> int:
    """How many runs were stopped early since ComfyUI started: when it changes, cached results may be those of half a run."""
    return len(_stopped)
