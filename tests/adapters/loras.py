"""Random LoRA, what they add to a model's weights, and a family whose names and layers ComfyUI fuses and swaps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer.adapters.weights import LoraPair, LoraWeights
from trainer.models.key_map import KeyMap, Rule

if TYPE_CHECKING:
    from trainer.models.base import ModelFamily

RANKS = ((4, 4.0), (3, 1.5), (1, 8.0), (6, 2.0))  # of the layers in turn, each with its alpha


def random_lora(
    family: ModelFamily, modules: list[str] | None = None, seed: int = 0, ranks: Sequence[tuple[int, float]] = RANKS
) -> LoraWeights:
    """On the named layers, else on all that the family trains, of several ranks and alphas."""
    generator = torch.Generator().manual_seed(seed)
    pairs = {}
    for number, module in enumerate(modules or trained(family)):
        (rows, columns), (rank, alpha) = family.layer_shapes[module], ranks[(number + seed) % len(ranks)]
        down, up = (torch.randn(shape, generator=generator) for shape in ((rank, columns), (rows, rank)))
        pairs[module] = LoraPair(down, up, alpha)
    return LoraWeights(pairs)


def trained(family: ModelFamily) -> list[str]:
    return [module for module in family.layer_shapes if re.fullmatch(family.spec.adapter_targets["all"], module)]


def added(weights: LoraWeights) -> dict[str, Tensor]:
    """What the LoRA adds to each layer's weight, float64; layers that it leaves alone are left out."""
    made = {name: pair.up.double() @ pair.down.double() * (pair.alpha / pair.rank) for name, pair in weights.pairs.items()}
    return {name: tensor for name, tensor in made.items() if tensor.any()}


def assert_same(ours: LoraWeights, theirs: LoraWeights, bar: float = 1e-6) -> None:
    assert_near(added(ours), added(theirs), bar)


def assert_near(ours: dict[str, Tensor], theirs: dict[str, Tensor], bar: float = 1e-6) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert (tensor - theirs[name]).norm() <= bar * theirs[name].norm(), name


BLOCK = "blocks.*.attn"
FUSED = KeyMap(
    [
        Rule((f"{BLOCK}.to_q", f"{BLOCK}.to_k", f"{BLOCK}.to_v", "blocks.*.mlp_in"), "stack.*.first"),
        Rule(f"{BLOCK}.to_out.0", "stack.*.attn.proj"),
        Rule("blocks.*.ff.proj", "stack.*.mlp_x.w1", swapped=True),
        Rule((f"{BLOCK}.add_q", f"{BLOCK}.add_k"), "stack.*.text.qk", swapped=True),
    ],
    original=[
        Rule(f"{BLOCK}.to_out.0", "stack.*.attn_proj"),
        Rule(f"{BLOCK}.add_q", "stack.*.text_q"),
        Rule(f"{BLOCK}.add_k", "stack.*.text_k"),
    ],
)
SHAPES = {"attn.to_q": (8, 8), "attn.to_k": (6, 8), "attn.to_v": (8, 8), "mlp_in": (20, 8), "attn.to_out.0": (8, 8), "ff.proj": (32, 8),
          "attn.add_q": (10, 12), "attn.add_k": (10, 12)}  # fmt: skip


class Skeleton:
    def state_dict(self) -> dict[str, Tensor]:
        return {f"blocks.{n}.{name}.weight": torch.empty(shape, device="meta") for n in range(2) for name, shape in SHAPES.items()}


class TensorFiles:
    """A model's files that hold given tensors."""

    def __init__(self, name: str, tensors: dict[str, Tensor]) -> None:
        self.name, self._tensors = name, tensors

    def tensor(self, part: str, name: str) -> Tensor:
        return self._tensors[name]


def fused_family(tensors: dict[str, Tensor] | None = None, folder: Path | str = "fused", folds_alpha: bool = False) -> Any:
    """A family of two blocks whose parts have unlike sizes."""
    spec = SimpleNamespace(
        family="fused", folds_alpha=folds_alpha, adapter_targets={"all": ".*"}, experts=(SimpleNamespace(name="", part="transformer"),)
    )
    shapes = {f"blocks.{n}.{name}": shape for n in range(2) for name, shape in SHAPES.items()}
    return SimpleNamespace(
        spec=spec,
        keys=FUSED,
        layer_shapes=shapes,
        files=TensorFiles(str(folder), tensors or {}),
        architecture="fused/lora",
        skeleton=Skeleton(),
    )
