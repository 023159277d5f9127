"""The training loop of one run: steps, samples, checkpoints, and what happens when it is told to stop."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from . import events
from .optim import make_optimizer, make_schedule
from .runfolder import RunFolder
from .sampling import Countdown, SampleRequest, draw
from .step import StepResult, TrainState, train_step
from .video import write_mp4

if TYPE_CHECKING:
    from .adapters.export import Exporter
    from .adapters.lora import Lora
    from .components import Components
    from .events import EventLog
    from .job import TrainingJob
    from .objectives.flow_matching import FlowMatching

SPEED_WINDOW = 20  # steps over which speed is averaged


class Training:
    """One run from its latest checkpoint to its last step."""

    def __init__(
        self,
        job: TrainingJob,
        run: RunFolder,
        components: Components,
        lora: Lora,
        objective: FlowMatching,
        requests: list[SampleRequest],
        log: EventLog,
    ) -> None:
        self.job, self.run, self.components, self.lora, self.objective, self.log = job, run, components, lora, objective, log
        self.compute = components.compute
        self.requests = requests
        parameters = lora.parameters()
        optimizer = make_optimizer(parameters, job.optimizer)
        schedule = make_schedule(optimizer, job.optimizer, job.schedule.steps)
        self.state = TrainState(components.transformer(), parameters, optimizer, schedule, self.compute.scaler())
        self.step = 0  # optimizer steps done
        self.saved = -1  # step of the newest checkpoint
        self._seconds: deque[float] = deque(maxlen=SPEED_WINDOW)

    def resume(self) -> None:
        """Takes up the newest checkpoint, if there is one."""
        if not (done := self.run.checkpoints()):
            return
        weights, state = self.run.load_checkpoint(done[-1])
        self.lora.load(weights, str(self.run.path))
        self.state.optimizer.load_state_dict(state["optimizer"])
        self.state.schedule.load_state_dict(state["schedule"])
        self.state.scaler.load_state_dict(state["scaler"])
        self.step = self.saved = done[-1]
        self.log.emit(events.Resumed(self.step))

    def train(self, exporter: Exporter) -> Path:
        """Trains to the last step, or to where it is told to stop and keep; the exported LoRA's file.

        Raises Interrupted on cancel, and whatever goes wrong, after a checkpoint of the last whole step.
        """
        job, log = self.job, self.log
        self.compute.reset_peak()
        file = None
        try:
            if self.step == 0:
                self.draw_samples()
            else:
                log.emit(events.Phase("train"))
            while self.step < job.schedule.steps and not log.take("stop"):
                self.one_step()
                last = self.step == job.schedule.steps
                if last or (job.samples.every and self.step % job.samples.every == 0) or log.take("sample"):
                    self.draw_samples()
                if last or self.step % job.output.save_every == 0 or log.take("save"):
                    file = self.save(exporter)
            return file if file and self.saved == self.step else self.save(exporter)
        except BaseException:
            if self.step > max(self.saved, 0):
                self.checkpoint()
            raise

    def one_step(self) -> None:
        """Trains one step and reports it."""
        start = time.perf_counter()
        optimizer, seed = self.job.optimizer, self.job.schedule.seed
        result = train_step(self.step + 1, self.state, self.objective, self.compute, optimizer.max_grad_norm, seed, self.log)
        self.step += 1
        self._seconds.append(time.perf_counter() - start)
        self.log.emit(self._report(result))
        if result.skipped:
            self.log.notice("fp16 overflowed: the step was skipped and the gradient scale halved.", f"step {self.step}", "info")

    def _report(self, result: StepResult) -> events.Step:
        seconds = sum(self._seconds) / len(self._seconds)
        total = self.job.schedule.steps
        left = seconds * (total - self.step)
        return events.Step(self.step, total, result.loss, result.lr, result.grad_norm, seconds, self.compute.peak_gib(), left)

    def draw_samples(self) -> None:
        """Draws the sample prompts at this step, skipping what is already there."""
        folder = self.run.sample_folder(self.step)
        if not self.requests or not self.job.samples.every:
            return
        self.log.emit(events.Phase("sample", f"step {self.step}"))
        dataset = self.objective.dataset
        self.lora.train(False)
        done = Countdown(self.log, self.requests)
        for slot, request in enumerate(self.requests):
            file = folder / f"{slot:02d}.mp4"
            if not file.is_file():
                text, negative = dataset.text(request.prompt), dataset.text(request.negative)
                write_mp4(draw(self.components, request, text, negative, done), file, self.components.family.spec.fps)
            self.log.emit(events.Sample(self.step, slot, request.prompt, file.relative_to(self.run.path).as_posix()))
        self.lora.train(True)
        self.components.park_vae()
        if self.step < self.job.schedule.steps:
            self.log.emit(events.Phase("train"))

    def checkpoint(self) -> Path:
        """Saves all that an exact resume needs."""
        state = {
            "optimizer": self.state.optimizer.state_dict(),
            "schedule": self.state.schedule.state_dict(),
            "scaler": self.state.scaler.state_dict(),
        }
        folder = self.run.save_checkpoint(self.step, self.lora.weights(), state, self.job.output.keep)
        self.saved = self.step
        return folder

    def save(self, exporter: Exporter) -> Path:
        """Saves a checkpoint and exports the LoRA; the exported file."""
        folder = self.checkpoint()
        file = exporter(self.lora, self.step)
        self.log.emit(events.Checkpoint(self.step, folder.relative_to(self.run.path).as_posix(), str(file)))
        return file
