"""What happens in the middle of a run when the card's memory runs out, or the compiler fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ..errors import UserError, fail, first_line

if TYPE_CHECKING:
    from ..components import Components
    from ..events import EventLog
    from .choices import Choices

T = TypeVar("T")
COMPILER = "The model is trained without compiling: this takes longer, and nothing else changes."


def stepping_down(work: Callable[[], T], components: Components, log: EventLog, where: str, examples: Callable[[], int] = lambda: 1) -> T:
    """What `work` gives; it is done again with a notch less memory each time that runs out, and uncompiled if compiling fails.

    The log says so. `examples` says how many it was computing together. Raises UserError when no notch is left.
    """
    while True:
        try:
            return work()
        except Exception as error:
            choices, told = _next(error, components.choices, where, examples())
        # only here do the error and what its frames hold let go of the memory
        components.choose(choices)
        log.notice(told, where)


def _next(error: Exception, choices: Choices, where: str, examples: int) -> tuple[Choices, str]:
    """What to go on with after an error, and why; raises the error if it is of another kind."""
    from torch._dynamo.exc import TorchDynamoException

    said = first_line(error)
    if isinstance(error, TorchDynamoException) and choices.compile and not is_shortage(error.__cause__):
        return replace(choices, compile=False), f"Compiling failed ({said}). {COMPILER}"
    if isinstance(error, UserError) or not (is_shortage(error) or is_shortage(error.__cause__)):
        raise error
    smaller = choices.smaller(examples)
    if smaller is None:
        cure = "Train fewer frames or a smaller size, or set memory.weights to nf4; running again resumes."
        raise fail(where, f"does not fit into the card's memory ({said}).", cure) from error
    return smaller, f"The card's memory ran out ({said}); going on with {smaller}."


def is_shortage(error: BaseException | None) -> bool:
    """Whether memory of the card ran out; libraries beside torch's allocator say it in their own words."""
    import torch

    return isinstance(error, torch.OutOfMemoryError) or (isinstance(error, RuntimeError) and "out of memory" in str(error).lower())
