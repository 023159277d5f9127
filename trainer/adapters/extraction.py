"""A LoRA out of two models of one family: the best of its rank for each layer's difference, one layer after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import draws
from ..errors import fail
from .checkpoints import Weights
from .combining import Loss, Size, halves, loss_of
from .weights import LoraPair, LoraWeights

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ..events import EventLog
    from ..models.key_map import KeyMap

WHOLE = 512  # layers of at most this size are decomposed whole
SPARE, ROUNDS = 16, 8  # singular values found beyond the rank, and power iterations, of the randomised decomposition


@dataclass(frozen=True)
class Extracted:
    """The LoRA, what its ranks lost of the difference, and the tensors that differ but are no layers that a LoRA has."""

    weights: LoraWeights
    loss: Loss
    left_out: list[str]


def extract(base: Weights, tuned: Weights, keys: KeyMap, size: Size, device: torch.device, where: str, log: EventLog) -> Extracted:
    """Tuned minus base as a LoRA; raises UserError, naming `where`, if they differ in no layer or in size, or are not finite."""
    names = sorted(base.names & tuned.names)
    left_out = sorted(base.names ^ tuned.names)
    pairs, losses, report = {}, [], log.progress(len(names), "tensors")
    for number, name in enumerate(names):
        report(number)
        old, new = base.tensor(name), tuned.tensor(name)
        if old.shape != new.shape:
            found = f"are not of one size: {name} is {tuple(old.shape)} in one and {tuple(new.shape)} in the other."
            raise fail(where, found, "Choose two models of one family and size.")
        difference = new.to(device).float() - old.to(device).float()
        if not difference.isfinite().all():
            whose = "the second" if old.float().isfinite().all() else "the first"
            raise fail(where, f"cannot be compared: {name} of {whose} holds NaN or infinity.", "Download or export that model again.")
        if not difference.any():
            continue
        module = name.removesuffix(".weight")
        if module == name or difference.dim() != 2 or not _has_place(module, keys):
            left_out.append(name)
            continue
        pairs[module], lost, whole = decomposed(difference, size, module)
        losses.append((module, lost, whole))
    if not pairs:
        raise fail(where, "differ in no layer that a LoRA can have.", "Choose a model and one that was trained from it.")
    return Extracted(LoraWeights(pairs), loss_of(losses), left_out)


def decomposed(difference: Tensor, size: Size, key: str) -> tuple[LoraPair, float, float]:
    """The nearest pair to a matrix, and squared norms of what it lacks and of the whole.

    Large matrices are decomposed by random projection: the ranks found are near the best, and what they lack is measured.
    """
    import torch

    smaller = min(difference.shape)
    wanted = min((size.rank or smaller) + SPARE, smaller)
    if smaller <= WHOLE or wanted * 2 > smaller:
        left, values, right = torch.linalg.svd(difference, full_matrices=False)
    else:
        with draws.module_randomness(difference.device, "extract", key):
            left, values, columns = torch.svd_lowrank(difference, wanted, ROUNDS)
        right = columns.T
    total = float(difference.double().square().sum())
    rank = size.kept(values, total)
    made = halves(left[:, :rank], values[:rank], right[:rank])
    lacking = difference - made.up @ made.down
    return LoraPair(made.down.cpu(), made.up.cpu(), made.alpha), float(lacking.double().square().sum()), total


def _has_place(module: str, keys: KeyMap) -> bool:
    try:
        keys.place(module)
    except KeyError:
        return False
    return True
