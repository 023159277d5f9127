"""An optimizer tried on two small matrices before anything is loaded: whether it is here, does what a run asks, and can be resumed."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from . import draws
from .combinations import FOUND_RATE, LOW_FACTOR, illegal
from .compute import Compute
from .errors import Problem, UserError
from .optim import averaged, follow_parameters, learning_rate, load_optimizer_state, make_optimizer, optimizer_state, set_learning_rate
from .optimizer_kinds import optimizer_class, option_parameters, usual_rate
from .optimizer_settings import OptimizerSettings, option_values

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from .job import TrainingJob

SHAPES = ((8, 512), (512, 8))  # as a LoRA's pair; 8-bit state begins at 4096 numbers
SAVED, LAST = 4, 12  # steps before the trial is saved, and in all; RAdam and its kin move from the sixth on
STARTS = (0.0, 0.1)  # sizes that the second matrix begins with
HEEDED = 0.5  # least power of a group's rate that its steps go by: 1 of nearly all optimizers, 2/3 of MADGRAD, 0 without effect
_CURE = "Choose another optimizer or options; it must step without a closure, a model or another optimizer, and save plain state."


def check_optimizer(job: TrainingJob) -> list[Problem]:
    """What is wrong with the job's optimizer: a package, a name, an option, a step that fails, a state that cannot be saved, LoRA+.

    Plain AdamW is known and not tried; neither is what lacks a class or a beta1.
    """
    settings = job.optimizer
    told = {setting for problem in illegal(job) for setting in problem.where.split(", ")}
    if told & {"optimizer.other", "optimizer.beta1"}:
        return []
    if settings.name == "AdamW" and not settings.options and not settings.offload_state:
        return []
    try:
        device = Compute(job.compute).device
        trial = _resumed(job, device)[0]
        rate = None if "optimizer.learning_rate" in told else _rate_too_low(job, trial)
        plus = None if "optimizer.lora_plus_ratio" in told else _lora_plus(job, device)
        return [problem for problem in (rate, plus) if problem]
    except UserError as error:
        return error.problems
    except Exception as error:  # whatever a library raises on arguments it does not like
        where = "optimizer.other" if settings.name == "other" else "optimizer.options" if settings.options else "optimizer.name"
        return [Problem(where, f"{_name(settings)} cannot be used here: {_reason(error, settings)}.", _CURE)]


def optimizer_notices(job: TrainingJob) -> list[str]:
    """What to know of a checked job's optimizer: an unusual rate, one without effect, a resume that is not exact."""
    settings = job.optimizer
    told = [usual_rate(settings)] if settings.name != "AdamW" else []
    if settings.name == "other":
        device = Compute(job.compute).device
        first, second = _resumed(job, device)
        if not first.same_as(second):
            told.append(
                f"{settings.other} does not keep all of its state: a run that is resumed goes on a little differently than one that "
                "was not interrupted."
            )
        if first.random:
            told.append(
                f"{settings.other} draws random numbers that schedule.seed does not reach: the same job gives another LoRA each time."
            )
        if not _heeds(job, device, "learning_rate", settings.learning_rate / 10, settings.learning_rate):
            told.append(
                f"{settings.other} takes no notice of optimizer.learning_rate, and so none of its warm-up and schedule: it goes by a rate "
                "of its own. optimizer.options may change that, as relative_step=false does for AdaFactor."
            )
    return [text for text in told if text]


class _Trial:
    """An optimizer over two small matrices, stepped with the same gradients each time, and otherwise as a run does."""

    def __init__(self, job: TrainingJob, device: torch.device, start: list[Tensor]) -> None:
        import torch

        self.settings = job.optimizer.model_copy(update={"warmup": 0, "schedule": "cosine"})  # a rate for each step, none of them small
        self.parameters = [torch.nn.Parameter(values.detach().clone().to(device)) for values in start]
        self.optimizer = make_optimizer(self.parameters, job.optimizer, faster=self.parameters[1:], seed=job.schedule.seed)
        self.random = False  # whether it drew random numbers
        if any("lr" not in group for group in self.optimizer.param_groups):
            raise ValueError("it has no learning rate that could be set")

    def step(self, number: int) -> None:
        """Does step `number` as `gradients` and `update` of a run do."""
        import torch

        random = _random_state(self.parameters[0].device)
        follow_parameters(self.optimizer)
        set_learning_rate(self.optimizer, learning_rate(number + 1, self.settings, 2 * LAST))
        self.optimizer.zero_grad(set_to_none=True)
        for place, parameter in enumerate(self.parameters):
            parameter.grad = 0.01 * draws.normal(tuple(parameter.shape), "trial", number, place).to(parameter)
        torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.max_grad_norm or float("inf"))
        self.optimizer.step()
        self.random = self.random or not torch.equal(random, _random_state(self.parameters[0].device))
        if not all(bool(parameter.isfinite().all()) for parameter in self.parameters):
            raise ValueError("its steps are not finite")

    def same_as(self, other: _Trial) -> bool:
        """Whether both hold the same to the bit."""
        import torch

        return all(torch.equal(a, b) for a, b in zip(self.parameters, other.parameters, strict=True))


def _random_state(device: torch.device) -> Tensor:
    """The state of torch's generators on the host and on the device."""
    import torch

    states = [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]
    return torch.cat(states)


def _resumed(job: TrainingJob, device: torch.device) -> tuple[_Trial, _Trial]:
    """A trial that went on after it was saved, and one that was resumed there. Raises what the library raises."""
    import torch

    dtype = torch.bfloat16 if job.adapter.precision == "bf16" else torch.float32
    with _alone(device):
        first = _Trial(job, device, [draws.normal(shape, "trial", shape[0]).to(dtype) for shape in SHAPES])
        try:
            with averaged(first.optimizer):  # the first samples of a run
                pass
        except Exception as error:
            raise ValueError("it cannot show its averaged weights before its first step") from error
        for number in range(SAVED):
            first.step(number)
        with averaged(first.optimizer):
            pass
        saved = io.BytesIO()
        torch.save(optimizer_state(first.optimizer), saved)
        saved.seek(0)
        second = _Trial(job, device, [parameter.data for parameter in first.parameters])
        load_optimizer_state(second.optimizer, torch.load(saved, weights_only=True, map_location="cpu"))
        for trial in (first, second):
            for number in range(SAVED, LAST):
                trial.step(number)
            with averaged(trial.optimizer):
                pass
    return first, second


def _way(job: TrainingJob, device: torch.device, start: float, **changed: float) -> float:
    """How far the second matrix goes with changed settings of the optimizer, from random numbers of size `start`.

    Without the first step, which is the same with any rate, or none, with some.
    """
    job = job.model_copy(update={"optimizer": job.optimizer.model_copy(update=changed)})
    way = 0.0
    with _alone(device):
        first, second = (draws.normal(shape, "trial", shape[0]) for shape in SHAPES)
        trial = _Trial(job, device, [first, start * second])
        for number in range(LAST):
            before = trial.parameters[1].detach().clone()
            trial.step(number)
            way += float((trial.parameters[1].detach() - before).norm()) if number else 0.0
    return way


def _heeds(job: TrainingJob, device: torch.device, setting: str, plain: float, changed: float) -> bool:
    """Whether the second matrix goes further with a larger value of a setting that multiplies its rate.

    From zero, as a LoRA's begins, or from elsewhere: FTRL stays where it is else, and Nero leaves zero at a length of its own.
    """
    for start in STARTS:
        ways = [_way(job, device, start, **{setting: value}) for value in (plain, changed)]
        if all(ways) and math.log(ways[1] / ways[0]) / math.log(changed / plain) >= HEEDED:
            return True
    return False


def _lora_plus(job: TrainingJob, device: torch.device) -> Problem | None:
    """A problem if the second matrix's rate has no effect, as where one rate is found for all matrices."""
    settings = job.optimizer
    ratio = settings.lora_plus_ratio
    if ratio == 1 or _heeds(job, device, "lora_plus_ratio", 1.0, ratio):
        return None
    cure = "Set optimizer.lora_plus_ratio to 1, or choose another optimizer, or options with which it heeds the rate."
    found = f"{_name(settings)} and {ratio:g} do not go together: it does not train the LoRA's second matrix at a rate of its own."
    return Problem(f"{_where(settings)}, optimizer.lora_plus_ratio", found, cure)


def _rate_too_low(job: TrainingJob, trial: _Trial) -> Problem | None:
    """A problem if the optimizer multiplies a rate that it finds itself, the library's `d`, by a low one; Prodigy's is in the table."""
    settings = job.optimizer
    if settings.name != "other" or settings.learning_rate >= LOW_FACTOR or "d" not in trial.optimizer.param_groups[0]:
        return None
    found = f"{_name(settings)} and {settings.learning_rate:g} do not go together: {_name(settings)} {FOUND_RATE}."
    return Problem("optimizer.other, optimizer.learning_rate", found, "Set optimizer.learning_rate to 1.")


def _name(settings: OptimizerSettings) -> str:
    return settings.other.strip() or settings.name


def _where(settings: OptimizerSettings) -> str:
    return "optimizer.other" if settings.name == "other" else "optimizer.name"


def _reason(error: Exception, settings: OptimizerSettings) -> str:
    """Why an optimizer failed its trial, in words that do not depend on its library where the reason is known."""
    text = str(error).partition("\n")[0].rstrip(".")
    if type(error).__name__ == "UnpicklingError":
        return "its state holds objects, and a checkpoint holds numbers and tensors only"
    if isinstance(error, RuntimeError) and "does not require grad" in text:
        return "it takes gradients of gradients, which a run does not compute"
    if "process group" in text:
        return "it trains in several processes"
    return _not_given(settings) or (text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}")


def _not_given(settings: OptimizerSettings) -> str:
    """What the class needs beside parameters and rate and has no default for, or ""."""
    given = option_values(settings.options)
    known = option_parameters(optimizer_class(settings, "cpu"))
    needed = [name for name, each in known.items() if each.default is each.empty and name not in given]
    return f"it needs {', '.join(needed)}; numbers among them go into optimizer.options" if needed else ""


@contextmanager
def _alone(device: torch.device) -> Iterator[None]:
    """Inside the block the library may draw, from the same numbers each time, and warn; nobody else hears of either."""
    import torch

    with warnings.catch_warnings(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        yield
