"""A small run on a tiny model, for tests of whole runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np

from trainer.compute import Compute
from trainer.events import Event, EventLog, Silent, read_events
from trainer.job import TrainingJob
from trainer.objectives.base import Objective
from trainer.run import RunResult
from trainer.step import StepResult, TrainState, gradients, update


def write_clips(folder: Path) -> Path:
    """Writes three clips with captions into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, frames in enumerate((9, 9, 13)):
        with av.open(str(folder / f"clip{number}.mp4"), "w") as container:
            stream = container.add_stream("libx264", rate=16, options={"crf": "10"})
            stream.width = stream.height = 64
            for shade in np.linspace(0, 255, frames):
                picture = np.full((64, 64, 3), shade, np.uint8)
                picture[:, : 20 * (number + 1)] = (255, 0, 0)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            container.mux(stream.encode())
        (folder / f"clip{number}.txt").write_text(f"a clip number {number}", encoding="utf-8")
    return folder


def settings(model: Path, clips: Path, steps: int = 6, /, **parts: dict[str, Any]) -> TrainingJob:
    """A job of a few steps; `parts` change settings of its parts."""
    base: dict[str, Any] = {
        "model": {"source": str(model)},
        "dataset": {"sources": [{"kind": "folder", "folder": str(clips)}], "buckets": [{"frames": 9, "height": 32, "width": 32}]},
        "adapter": {"rank": 4, "dropout": 0.1},
        "schedule": {"steps": steps, "accumulation": 2, "seed": 7},
        "optimizer": {"schedule": "cosine", "learning_rate": 1e-3},
        "samples": {"every": 3, "steps": 2, "prompts": [{"prompt": "a clip"}]},
        "compute": {"device": "cpu"},
        "output": {"name": "run", "save_every": 2},
    }
    for part, change in parts.items():
        base[part] = {**base.get(part, {}), **change}
    return TrainingJob.parse(base)


def losses(result: RunResult) -> list[tuple[Any, ...]]:
    """Step, loss, learning rate and gradient norm of every step in the log."""
    return [(e["step"], e["loss"], e["lr"], e["grad_norm"]) for e in read_events(result.folder / "events.jsonl") if e["type"] == "step"]


class Cancels(Silent):
    """Asks once `count` events of a type were heard."""

    def __init__(self, kind: str, count: int, request: str = "cancel") -> None:
        self.kind, self.left, self.answer = kind, count, request

    def emit(self, event: Event) -> None:
        self.left -= event.type == self.kind

    def request(self) -> str | None:
        return self.answer if self.left <= 0 else None


def train_step(step: int, job: TrainingJob, state: TrainState, objective: Objective, compute: Compute, log: EventLog) -> StepResult:
    """One optimizer step as a run does it."""
    result = gradients(step, job, state, objective, compute, log)
    update(state)
    return result
