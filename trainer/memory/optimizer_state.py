"""What an optimizer keeps of the numbers that it trains: bytes on the card and on the host, as its settings say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..optimizer_kinds import KINDS

if TYPE_CHECKING:
    from ..job import AdapterSettings
    from ..optimizer_settings import OptimizerSettings

UNKNOWN = 8.0  # bytes a number: two float32 numbers, as AdamW keeps
FACTORED = {"Adafactor": 1, "CAME": 2}  # of how many numbers each matrix keeps the means of its rows and columns alone, in float32
ON_HOST = 8  # bytes a number beside the state where that is offloaded: torchao keeps the weights and their gradients there too


def weight_bytes(adapter: AdapterSettings) -> int:
    """Bytes of a number of the adapter on the card."""
    return 2 if adapter.precision == "bf16" else 4


def state_on_card(settings: OptimizerSettings | None, trained: int, rank: int) -> int:
    """Bytes that the optimizer keeps on the card for the numbers of a LoRA of this rank; none is AdamW."""
    return 0 if settings and settings.offload_state else _state(settings, trained, rank)


def state_on_host(settings: OptimizerSettings | None, trained: int, rank: int) -> int:
    """Bytes that it keeps in the host's memory."""
    return _state(settings, trained, rank) + ON_HOST * trained if settings and settings.offload_state else 0


def _state(settings: OptimizerSettings | None, trained: int, rank: int) -> int:
    """A pair of matrices [rank, in] and [out, rank] has about one row or column for each `rank` numbers."""
    kind = KINDS.get(settings.name) if settings else None
    if settings is None or kind is None:
        return int(UNKNOWN * trained)
    each = 0.0 if settings.name == "SGD" and not settings.beta1 else kind.state_bytes
    return int(each * trained + 4 * FACTORED.get(settings.name, 0) * trained / rank)
