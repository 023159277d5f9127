"""A LoRA's weights as plain tensors, by the names of the transformer's modules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import Problem, UserError, fail

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LoraPair:
    """One layer: down [rank, in] and up [out, rank], applied at alpha / rank."""

    down: Tensor
    up: Tensor
    alpha: float

    @property
    def rank(self) -> int:
        """Rows of `down`."""
        return self.down.shape[0]

    @property
    def layer(self) -> tuple[int, int]:
        """The size of the layer, [out, in]."""
        return self.up.shape[0], self.down.shape[1]

    @property
    def scale(self) -> float:
        """What up · down is multiplied by."""
        return self.alpha / self.rank

    def equals(self, other: LoraPair) -> bool:
        """Whether both are the same to the bit."""
        import torch

        return self.alpha == other.alpha and torch.equal(self.down, other.down) and torch.equal(self.up, other.up)

    def unfilled(self) -> LoraPair:
        """This pair without the ranks that are zero in both halves: some programs fill layers up to one rank."""
        used = self.up.any(0) | self.down.any(1)
        if used.all() or not used.any():
            return self
        return LoraPair(self.down[used].contiguous(), self.up[:, used].contiguous(), self.scale * int(used.sum()))

    @property
    def size(self) -> float:
        """Frobenius norm of what it adds to the layer's weight, which is not formed."""
        up, down = self.up.double(), self.down.double()
        return self.scale * max(float(((up.T @ up) * (down @ down.T)).sum()), 0.0) ** 0.5

    def plus(self, other: LoraPair, factor: float = 1.0) -> LoraPair:
        """The exact sum of this pair and `factor` times another of the same layer, of both ranks together."""
        import torch

        rank = self.rank + other.rank
        up = torch.cat([self.up * self.scale, other.up * (other.scale * factor)], 1)
        return LoraPair(torch.cat([self.down, other.down]), up, float(rank))


@dataclass
class LoraWeights:
    """All layers of a LoRA by module name."""

    pairs: dict[str, LoraPair]

    @property
    def strengths(self) -> list[tuple[int, float]]:
        """The (rank, alpha) that its layers have, each once, ascending."""
        return sorted({(pair.rank, pair.alpha) for pair in self.pairs.values()})

    def __str__(self) -> str:
        ranks, alphas = ({strength[place] for strength in self.strengths} for place in (0, 1))
        return f"rank {_span(ranks)} and alpha {_span(alphas)}"


def _span(values: Iterable[float]) -> str:
    values = sorted(values)
    return f"{values[0]:g}" if len(values) == 1 else f"{values[0]:g} to {values[-1]:g}"


def check_finite(weights: LoraWeights, where: str) -> None:
    """Raises UserError if the LoRA holds NaN or infinity."""
    bad = [name for name, pair in weights.pairs.items() if not (pair.down.isfinite().all() and pair.up.isfinite().all())]
    if bad:
        found = f"the LoRA is not finite in {len(bad)} layers (such as {bad[0]})."
        raise fail(where, found, "It cannot be used; train it at a lower learning rate.")


def check_changed(weights: LoraWeights, where: str) -> None:
    """Raises UserError if the LoRA would change nothing, every up half being zero."""
    if not any(pair.up.any() for pair in weights.pairs.values()):
        raise fail(where, "the LoRA is all zero, it would change nothing.", "Train more steps or raise the learning rate.")


def require_modules(weights: LoraWeights, shapes: dict[str, tuple[int, int]], where: str) -> None:
    """Raises UserError if the LoRA has layers that the model lacks or has in another size; `shapes` are [out, in] by module name."""
    strangers = sorted(weights.pairs.keys() - shapes.keys())
    if strangers:
        found = f"has {len(strangers)} layers this model lacks (such as {strangers[0]})."
        raise UserError(Problem(where, found, "It was trained for another size."))
    for name, pair in weights.pairs.items():
        made, own = pair.layer, shapes[name]
        if made != own:
            found = f"{name} is for a layer of {made[0]}x{made[1]}, and this model's is {own[0]}x{own[1]}."
            raise fail(where, found, "Choose a LoRA trained for this model and size.")
