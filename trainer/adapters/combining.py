"""LoRA put together and made smaller: sums are exact, lower ranks are the best ones, by singular values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from .weights import LoraPair, LoraWeights

if TYPE_CHECKING:
    from torch import Tensor

CANCELLED = 1e-6  # a sum's share of the sizes of its parts that is nothing but rounding: float32 has 6e-8


@dataclass(frozen=True)
class Size:
    """How large a layer's LoRA may be: at most `rank`, and no more than holds `energy`, the share of the squared singular values."""

    rank: int | None = None
    energy: float = 1.0

    def kept(self, values: Tensor, total: float) -> int:
        """How many of the descending singular values are kept, at least one; `total` is the sum of the squares of all."""
        squares = values.double().square().cumsum(0)
        count = int((squares < self.energy * total * (1 - 1e-12)).sum()) + 1
        return max(min(count, len(values), self.rank or len(values)), 1)


@dataclass(frozen=True)
class Loss:
    """What smaller ranks lost: Frobenius norms of all layers, and of the one that lost the largest share."""

    lost: float  # squared
    whole: float  # squared
    worst: float  # share of the worst layer
    layer: str

    def __str__(self) -> str:
        share = (self.lost / self.whole) ** 0.5 if self.whole else 0.0
        return f"relative error {share:.2e}, at most {self.worst:.2e} ({self.layer})"


def merged(parts: Sequence[tuple[LoraWeights, float]]) -> LoraWeights:
    """The sum of LoRA by weights, exact: each layer has the ranks of all that have it.

    Layers in which the parts cancel each other out, but for what float32 rounds, are left out.
    """
    pairs: dict[str, list[LoraPair]] = {}
    for weights, factor in parts:
        for name, pair in weights.pairs.items():
            pairs.setdefault(name, []).append(LoraPair(pair.down, pair.up * (pair.scale * factor), pair.rank))
    sums = {name: reduce(LoraPair.plus, several) for name, several in pairs.items()}
    return LoraWeights({name: pair for name, pair in sums.items() if not _cancelled(pair, pairs[name])})


def _cancelled(pair: LoraPair, parts: Sequence[LoraPair]) -> bool:
    """Whether a sum is nothing but rounding; what is not finite is no such sum."""
    return pair.size <= CANCELLED * sum(part.size for part in parts) < math.inf


def resized(weights: LoraWeights, size: Size) -> tuple[LoraWeights, Loss]:
    """The nearest LoRA of a smaller size, and what it lost."""
    made, losses = {}, []
    for name, pair in weights.pairs.items():
        made[name], lost, whole = _resized(pair, size)
        losses.append((name, lost, whole))
    return LoraWeights(made), loss_of(losses)


def loss_of(losses: Iterable[tuple[str, float, float]]) -> Loss:
    """The sum of losses by layer: squared norms of what is lost and of the whole."""
    found = list(losses)
    shares = [((lost / whole) ** 0.5 if whole else 0.0, name) for name, lost, whole in found]
    worst, layer = max(shares, default=(0.0, ""))
    return Loss(sum(lost for _, lost, _ in found), sum(whole for _, _, whole in found), worst, layer)


def halves(left: Tensor, values: Tensor, right: Tensor) -> LoraPair:
    """Left · diag(values) · right, [out, r], [r], [r, in], as a LoRA of scale 1 with the values shared by both halves."""
    root = values.sqrt()
    return LoraPair((root[:, None] * right).float().contiguous(), (left * root).float().contiguous(), float(len(values)))


def _resized(pair: LoraPair, size: Size) -> tuple[LoraPair, float, float]:
    """The pair, and squared norms of what was lost and of the whole; exact through two QR decompositions, in float64."""
    import torch

    left, upper = torch.linalg.qr(pair.up.double() * pair.scale)
    right, lower = torch.linalg.qr(pair.down.double().T)
    inner_left, values, inner_right = torch.linalg.svd(upper @ lower.T, full_matrices=False)
    total = float(values.square().sum())
    rank = size.kept(values, total)
    made = halves(left @ inner_left[:, :rank], values[:rank], inner_right[:rank] @ right.T)
    return made, float(values[rank:].square().sum()), total
