"""What a training step needs of an objective."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..data.sampler import Example


@dataclass
class MicroBatch:
    """B examples of one shape, with every random draw made; the step gets it on the training device."""

    encoded: dict[str, Tensor]  # "latents" [B, C, T, h, w] as cached, and all that the family is given beside them, [B, ...]
    text: dict[str, Tensor]  # [B, ...]
    noise: Tensor  # [B, C, T, h, w]
    sigma: Tensor  # [B]
    weights: Tensor  # [B], shares of the step's loss
    examples: Sequence[Example]

    def each(self, change: Callable[[Tensor], Tensor]) -> MicroBatch:
        """The same examples with every tensor changed."""
        encoded, text = ({name: change(tensor) for name, tensor in part.items()} for part in (self.encoded, self.text))
        noise, sigma, weights = map(change, (self.noise, self.sigma, self.weights))
        return replace(self, encoded=encoded, text=text, noise=noise, sigma=sigma, weights=weights)

    def pieces(self, size: int) -> Iterator[MicroBatch]:
        """The same examples, at most `size` at a time; 0 has no limit."""
        size = size or len(self.examples)
        for first in range(0, len(self.examples), size):
            piece = slice(first, first + size)
            yield replace(self.each(itemgetter(piece)), examples=self.examples[piece])

    @property
    def tensors(self) -> list[Tensor]:
        """All of its tensors."""
        return [*self.encoded.values(), *self.text.values(), self.noise, self.sigma, self.weights]


class Objective(Protocol):
    """What is learned. The step knows nothing else of it."""

    def collect(self, step: int) -> Iterator[MicroBatch]:
        """The micro-batches of optimizer step `step` (1-based), each made when it is needed."""
        ...

    def loss(self, transformer: nn.Module, batch: MicroBatch) -> Tensor:
        """The loss of each example, [B] float32."""
        ...
