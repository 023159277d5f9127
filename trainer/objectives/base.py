"""What a training step needs of an objective."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..data.sampler import Example


@dataclass
class MicroBatch:
    """B examples of one shape, with every random draw made; tensors are on the training device."""

    encoded: dict[str, Tensor]  # "latents" [B, C, T, h, w] as cached, and all that the family is given beside them
    text: dict[str, Tensor]
    noise: Tensor  # [B, C, T, h, w]
    sigma: Tensor  # [B]
    weights: Tensor  # [B], shares of the step's loss
    examples: Sequence[Example]


class Objective(Protocol):
    """What is learned. The step knows nothing else of it."""

    def collect(self, step: int) -> Iterator[MicroBatch]:
        """The micro-batches of optimizer step `step` (1-based), each made when it is needed."""
        ...

    def loss(self, transformer: nn.Module, batch: MicroBatch) -> Tensor:
        """The loss of each example, [B] float32."""
        ...
