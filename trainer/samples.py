"""The sample videos of a run."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from . import events
from .data.content import key_of
from .sampling import Countdown, SampleRequest, draw, seen_picture
from .section_prompts import section_prompts
from .video import write_mp4

if TYPE_CHECKING:
    from pathlib import Path

    from .components import Components
    from .data.dataset import TrainingData
    from .events import EventLog
    from .runfolder import RunFolder


class Samples:
    """Draws the sample prompts of a run; a file is named by its prompt's place and all that shapes it."""

    def __init__(self, run: RunFolder, requests: list[SampleRequest], dataset: TrainingData, components: Components, log: EventLog) -> None:
        self.run, self.requests, self.dataset, self.components, self.log = run, requests, dataset, components, log
        self._pictures = [seen_picture(request, components.family.spec) for request in requests]

    def file(self, step: int, slot: int) -> Path:
        """Where the sample of a prompt at a step lies."""
        return self.run.sample_folder(step) / f"{slot:02d}-{key_of(**asdict(self.requests[slot]))[:8]}.mp4"

    def draw(self, step: int) -> None:
        """Draws what is not there yet at this step."""
        missing = [slot for slot in range(len(self.requests)) if not self.file(step, slot).is_file()]
        if not missing:
            return
        self.log.emit(events.Phase("sample", f"step {step}"))
        countdown = Countdown(self.log, self.components.family.spec, [self.requests[slot] for slot in missing])
        for slot in missing:
            request, picture, file = self.requests[slot], self._pictures[slot], self.file(step, slot)
            prompts, seen = section_prompts(request, self.components.family.spec), picture.digest if picture else ""
            texts, negative = [self.dataset.text(prompt, seen) for prompt in prompts], self.dataset.text(request.negative)
            write_mp4(draw(self.components, request, texts, negative, countdown), file, self.components.family.spec.fps)
            self.log.emit(events.Sample(step, slot, request.prompt, file.relative_to(self.run.path).as_posix()))
        countdown.finish()
