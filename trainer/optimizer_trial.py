"""An optimizer tried on two small matrices before anything is loaded: whether it is here, takes its options, and can be resumed."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING

from . import draws
from .combinations import illegal
from .compute import Compute
from .errors import Problem, UserError
from .optim import load_optimizer_state, make_optimizer, optimizer_state
from .optimizer_kinds import usual_rate

if TYPE_CHECKING:
    import torch
    from torch import nn

    from .job import OptimizerSettings, TrainingJob

SHAPES = ((8, 512), (512, 8))  # as a LoRA's pair; 8-bit state begins at 4096 numbers
_CURE = "Choose another optimizer or options; it must step without a closure, a model or another optimizer, and save plain state."


def check_optimizer(job: TrainingJob) -> list[Problem]:
    """What is wrong with the job's optimizer: a package, a name, an option, a step that fails, a state that cannot be saved.

    Plain AdamW is known and not tried; neither is what the table of combinations refuses.
    """
    settings = job.optimizer
    if any(name in problem.where for problem in illegal(job) for name in ("optimizer.other", "optimizer.beta1")):
        return []
    if settings.name == "AdamW" and not settings.options and not settings.offload_state:
        return []
    try:
        device = Compute(job.compute).device
        _try(settings, device)
    except UserError as error:
        return error.problems
    except Exception as error:  # whatever a library raises on arguments it does not like
        where = "optimizer.other" if settings.name == "other" else "optimizer.options" if settings.options else "optimizer.name"
        name = settings.other or settings.name
        return [Problem(where, f"{name} cannot be used here ({type(error).__name__}: {str(error).partition(chr(10))[0]}).", _CURE)]
    return []


def optimizer_notices(job: TrainingJob) -> list[str]:
    """What to know of a checked job's optimizer: an unusual rate, a resume that is not exact."""
    told = [usual_rate(job.optimizer)] if job.optimizer.name != "AdamW" else []
    if job.optimizer.name == "other" and not _try(job.optimizer, Compute(job.compute).device):
        told.append(
            f"{job.optimizer.other} does not keep all of its state: a run that is resumed goes on a little differently than one that "
            "was not interrupted."
        )
    return [text for text in told if text]


def _try(settings: OptimizerSettings, device: torch.device) -> bool:
    """Steps, saves, loads and steps again; whether both copies then hold the same to the bit. Raises what the library raises."""
    import torch
    from torch import nn

    first = [nn.Parameter(draws.normal(shape, "trial", shape[0]).to(device)) for shape in SHAPES]
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        optimizer = make_optimizer(first, settings)
        for number in range(2):
            _step(first, optimizer, number)
        saved = io.BytesIO()
        torch.save(optimizer_state(optimizer), saved)
        saved.seek(0)
        second = [nn.Parameter(parameter.detach().clone()) for parameter in first]
        again = make_optimizer(second, settings)
        load_optimizer_state(again, torch.load(saved, weights_only=True, map_location="cpu"))
        for number in range(2, 4):
            _step(first, optimizer, number)
            _step(second, again, number)
    if not all(bool(parameter.isfinite().all()) for parameter in first):
        raise ValueError("its steps are not finite")
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def _step(parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, number: int) -> None:
    for place, parameter in enumerate(parameters):
        parameter.grad = 0.01 * draws.normal(tuple(parameter.shape), "trial", number, place).to(parameter.device)
    optimizer.step()
