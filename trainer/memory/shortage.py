"""What happens when the card's memory runs out in the middle of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ..errors import UserError, fail

if TYPE_CHECKING:
    from ..components import Components
    from ..events import EventLog

T = TypeVar("T")


def with_less_memory(work: Callable[[], T], components: Components, log: EventLog, where: str) -> T:
    """What `work` gives; each time it runs out of memory it is done again with choices that take a notch less, and the log says so.

    Raises UserError when no notch is left.
    """
    while True:
        try:
            return work()
        except Exception as error:
            if isinstance(error, UserError) or not _is_shortage(error):
                raise
            told = str(error).splitlines()[0]
        # only here do the error and what its frames hold let go of the memory
        smaller = components.choices.smaller()
        if smaller is None:
            cure = "Train fewer frames, a smaller size or batch, or set memory.weights to nf4; running again resumes."
            raise fail(where, f"does not fit into the card's memory ({told}).", cure)
        components.choose(smaller)
        log.notice(f"The card's memory ran out ({told}); going on with {smaller}.", where)


def _is_shortage(error: Exception) -> bool:
    """Whether memory of the card ran out; libraries beside torch's allocator say it in their own words."""
    import torch

    return isinstance(error, torch.OutOfMemoryError) or (isinstance(error, RuntimeError) and "out of memory" in str(error).lower())
