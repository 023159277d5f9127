"""The training loop of one run: steps, samples, checkpoints, and what happens when it is told to stop."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from . import events
from .errors import fail
from .experts import expert_at, trained_experts
from .memory.attention import Attention
from .memory.stepping_down import stepping_down
from .memory.usage import Usage
from .optim import averaged, follow_parameters, load_optimizer_state, make_optimizer, optimizer_state
from .runfolder import RunFolder
from .step import StepResult, TrainState, gradients, update

if TYPE_CHECKING:
    from torch import nn

    from .adapters.export import Exporter
    from .adapters.lora import Lora
    from .adapters.weights import LoraWeights
    from .components import Components
    from .events import EventLog
    from .job import TrainingJob
    from .models.base import Expert
    from .objectives.base import Objective
    from .samples import Samples

SPEED_WINDOW = 20  # steps over which speed is averaged
FROZEN_FORMS = "frozen_forms"  # in a checkpoint: how frozen weights were held, as `_forms` tells it
SLOW = 3  # times the planned seconds, from which on a run says so


class Training:
    """One run from its latest checkpoint to its last step."""

    def __init__(
        self,
        job: TrainingJob,
        run: RunFolder,
        components: Components,
        loras: Mapping[str, Lora],
        objective: Objective,
        samples: Samples,
        log: EventLog,
    ) -> None:
        self.job, self.run, self.loras, self.objective, self.samples, self.log = job, run, loras, objective, samples, log
        self.components, self.compute = components, components.compute
        self._experts = trained_experts(components.family.spec, job.model.expert)
        self._held = self._forms()
        transformer = stepping_down(lambda: self._transformer(1), components, log, "loading")
        self.state = self._untrained(transformer)
        self._attention = Attention(self.compute, self.state.transformer)
        self.step = 0  # optimizer steps done
        self.saved = -1  # step of the newest checkpoint
        self.expected_seconds = 0.0  # of a step, by the run's plan; 0 without one
        self.usage = Usage(self.compute)
        self._seconds: deque[float] = deque(maxlen=SPEED_WINDOW)
        self._start: dict[str, LoraWeights] = {}  # what training goes back to while there is no checkpoint
        self._torn = False  # whether an update was cut short, so that the weights are those of no step

    def _untrained(self, transformer: nn.Module) -> TrainState:
        """The state before the first step: an optimizer that has seen nothing."""
        loras = self.loras.values()
        parameters = [parameter for lora in loras for parameter in lora.parameters()]
        optimizer = make_optimizer(
            parameters, self.job.optimizer, faster=[up for lora in loras for up in lora.up_parameters()],
            turns=[lora.parameters() for lora in loras], seed=self.job.schedule.seed,
        )  # fmt: skip
        return TrainState(transformer, parameters, optimizer, self.compute.scaler())

    def resume(self, newest: tuple[int, dict[str, LoraWeights], dict[str, Any]] | None) -> None:
        """Takes up the run's newest checkpoint, whose weights the LoRA has, or starts over if the run was ended before its first."""
        if newest:
            self.step, _, state = newest
            self.saved = self.step
            load_optimizer_state(self.state.optimizer, state)
            self._tell_if_other_weights(state.get(FROZEN_FORMS))
            self.state.scaler.load_state_dict(state["scaler"])
        else:
            self._start = self._weights()
        if self.step or any(event["type"] in events.UNDONE for event in events.read_log(self.run.events)):
            self.log.emit(events.Resumed(self.step))
            self.run.forget_samples(after=self.step)

    def _forms(self) -> dict[str, str]:
        """The form of each frozen layer of the transformers that are trained; the others are in the run's precision."""
        from .memory.frozen import frozen_forms

        modules = {expert.part: cast("nn.Module", self.components.frozen_transformer(expert)) for expert in self._experts}
        return {f"{part}.{name}": form for part, module in modules.items() for name, form in frozen_forms(module).items()}

    def _tell_if_other_weights(self, before: dict[str, str] | None) -> None:
        """Says that the checkpoint was trained on weights held otherwise, whatever was set or planned; older ones do not know how."""
        if before is not None and before != self._held:
            held, now = _told(before), _told(self._held)
            text = f"The frozen weights were {held} up to here and are {now} from now on: the loss may jump a little before it falls again."
            self.log.notice(text, "memory.weights")

    def train(self, exporter: Exporter) -> dict[str, Path]:
        """Trains to the last step, or to where it is told to stop and keep; the exported LoRA files by expert.

        Raises Interrupted on cancel, and whatever goes wrong, after a checkpoint of the last whole step if the weights are its.
        """
        with self._attention.training():
            return self._train(exporter)

    def _train(self, exporter: Exporter) -> dict[str, Path]:
        files = None
        with self.usage.during("before training"):
            pass
        try:
            while True:
                self.draw_samples()
                asked = bool(self.step) and self.log.take("save")
                if asked or (self.step and (self.finished or self.step % self.job.output.save_every == 0)):
                    files = self.save(exporter)
                if self.finished or (self.step and self.log.take("stop")):
                    return files if files and self.saved == self.step else self.save(exporter)
                self.one_step()
        except Exception:
            if self.step > max(self.saved, 0) and not self._torn:
                self.checkpoint()
            raise

    @property
    def finished(self) -> bool:
        """Whether the last step is done."""
        return self.step >= self.job.schedule.steps

    def one_step(self) -> None:
        """Trains one step and reports it."""
        start = time.perf_counter()
        with self.usage.during("training"):
            result = stepping_down(self._next, self.components, self.log, f"step {self.step + 1}", lambda: self.state.examples)
        self.step += 1
        self._seconds.append(time.perf_counter() - start)
        self._tell_if_slow()
        self.log.emit(self._report(result))
        if result.skipped:
            self.log.notice("fp16 overflowed: the step was skipped and the gradient scale halved.", f"step {self.step}", "info")

    def _next(self) -> StepResult:
        """The next step, which draws what it draws whenever it is done again."""
        if self._torn:
            self._go_back()
        self.state.transformer, self.state.at_once = self._transformer(self.step + 1), self.components.choices.at_once
        follow_parameters(self.state.optimizer)
        result = gradients(self.step + 1, self.job, self.state, self.objective, self.compute, self.log)
        self._torn = True
        update(self.state)
        self._torn = False
        return result

    def _go_back(self) -> None:
        """Takes up the newest checkpoint, or the start where there is none."""
        newest, reached = self.run.newest_checkpoint(self.log), self.step
        if not newest and not self._start:
            raise fail(str(self.run.path), "has no checkpoint that can be read.", "Run again, under another output.name.")
        self.step, weights = (newest[0], newest[1]) if newest else (0, self._start)
        for name, lora in self.loras.items():
            lora.load(weights[name], "the run's checkpoint")
        self.state = self._untrained(self.state.transformer)
        self.resume(newest)
        self._torn = False
        if self.step < reached:
            text = f"The weights of step {reached + 1} were half changed: training goes on from the checkpoint of step {self.step}."
            self.log.notice(text, f"step {reached + 1}")

    def _tell_if_slow(self) -> None:
        """Says once that steps take far longer than planned, which on Windows is how a card's full memory shows."""
        if self.expected_seconds and len(self._seconds) == self._seconds.maxlen:
            usual = sorted(self._seconds)[len(self._seconds) // 2]
            if usual > SLOW * self.expected_seconds:
                found = f"Steps take {usual:.1f} s, and {self.expected_seconds:.1f} s were planned: another program may use the card, or "
                self.log.notice(found + "its memory be full and spill into the host's. Lower memory.fit_into.", f"step {self.step}")
                self.expected_seconds = 0.0

    def _report(self, result: StepResult) -> events.Step:
        seconds = sum(self._seconds) / len(self._seconds)
        total = self.job.schedule.steps
        left = seconds * (total - self.step)
        expert = self._expert(self.step).name
        return events.Step(self.step, total, result.loss, result.lr, result.grad_norm, seconds, self.usage.peak("training"), left, expert)

    def draw_samples(self) -> None:
        """Draws the sample prompts if they are due at this step or asked for; those already there are kept."""
        asked, every = self.log.take("sample"), self.job.samples.every
        if asked or (every and (self.finished or self.step % every == 0)):
            self._set_training(False)
            with self.usage.during("sampling"):
                stepping_down(self._draw, self.components, self.log, f"samples of step {self.step}")
            self._set_training(True)
        if not self.finished and self.log.phase != "train":
            self.log.emit(events.Phase("train"))

    def _draw(self) -> None:
        with averaged(self.state.optimizer):
            self.samples.draw(self.step)

    def _transformer(self, step: int) -> nn.Module:
        """The transformer that a step trains, on the device."""
        return cast("nn.Module", self.components.transformer(self._expert(step)))

    def _expert(self, step: int) -> Expert:
        return expert_at(step, self._experts, self.job.schedule.switch_every)

    def _set_training(self, mode: bool) -> None:
        for lora in self.loras.values():
            lora.train(mode)

    def checkpoint(self) -> Path:
        """Saves all that an exact resume needs."""
        state = {
            **optimizer_state(self.state.optimizer),
            "scaler": self.state.scaler.state_dict(),
            FROZEN_FORMS: self._held,
        }
        folder = self.run.save_checkpoint(self.step, self._weights(), state, self.job.output.keep)
        self.saved, self._start = self.step, {}
        return folder

    def _weights(self) -> dict[str, LoraWeights]:
        """The LoRA's weights by expert."""
        return {name: lora.weights() for name, lora in self.loras.items()}

    def save(self, exporter: Exporter) -> dict[str, Path]:
        """Saves a checkpoint and exports the LoRA; the exported files by expert."""
        return stepping_down(lambda: self._save(exporter), self.components, self.log, f"saving step {self.step}")

    def _save(self, exporter: Exporter) -> dict[str, Path]:
        folder = self.checkpoint()
        with averaged(self.state.optimizer):
            files = {name: exporter(lora, self.step, name) for name, lora in self.loras.items()}
        for file in files.values():
            self.log.emit(events.Checkpoint(self.step, folder.relative_to(self.run.path).as_posix(), str(file)))
        return files


def _told(forms: Mapping[str, str]) -> str:
    """How weights are held, in words."""
    layers = Counter(forms.values())
    return " and ".join(f"{form} in {count} layers" for form, count in sorted(layers.items())) or "in the run's precision"
