"""A transformer without weights, of one block of each kind, to rehearse a step of the whole one with."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from ..errors import UserError, fail
from .blocks import blocks_of

if TYPE_CHECKING:
    from ..models.base import ModelFamily
    from ..models.files import ModelFiles
    from .choices import Weights


class WithoutWeights:
    """A model's files whose parts load as modules on the meta device."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def load(self, part: str, kind: Any, dtype: torch.dtype, weights: Weights = "as stored") -> Any:
        """The part's class by its configuration, in the precision that its weights would have; raises UserError if it has none such."""
        from accelerate import init_empty_weights

        from ..models.loading import CURE, UNFIT

        config = self._files.config(part)
        try:
            with init_empty_weights(include_buffers=True):
                model = kind.from_config(config) if hasattr(kind, "from_config") else kind(config)
        except UNFIT as error:
            told = f"{type(error).__name__}: {error}"
            raise fail(f"{self._files.name}, {part}", f"has a configuration that no model has ({told}).", CURE) from error
        kept = tuple(getattr(model, "_keep_in_fp32_modules", None) or ())
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if tensor.is_floating_point() and not any(piece in name.split(".") for piece in kept):
                tensor.data = tensor.data.to(dtype)
        return model

    def tensor(self, part: str, name: str) -> Tensor:
        """Where the file is not there one that goes with every shape."""
        try:
            with _disable_current_modes():  # it has values
                return self._files.tensor(part, name)
        except UserError:
            return torch.ones(1)


@dataclass(frozen=True)
class Kind:
    """Blocks of a transformer that compute alike: the list that they stand in, the first of them, and how many follow each other."""

    name: str  # of the first
    count: int


def twin_of(family: ModelFamily) -> ModelFamily:
    """The family with files that hold no weights."""
    twin = copy.copy(family)
    twin.files = cast("ModelFiles", WithoutWeights(family.files))
    return twin


def kinds_of(transformer: nn.Module) -> list[Kind]:
    """The kinds of blocks in the order in which they compute, told by class and shapes."""
    found: list[tuple[Any, str, int]] = []
    for name, block in blocks_of(transformer).items():
        shapes = [(key, tuple(parameter.shape)) for key, parameter in block.named_parameters()]
        mark = name.rpartition(".")[0], type(block), shapes
        if found and found[-1][0] == mark:
            found[-1] = (mark, found[-1][1], found[-1][2] + 1)
        else:
            found.append((mark, name, 1))
    return [Kind(name, count) for _, name, count in found]


def shorten(transformer: Any, kinds: Sequence[Kind]) -> list[nn.Module]:
    """Leaves the first block of each kind in its list; these blocks, in the order of the kinds."""
    kept: dict[str, list[nn.Module]] = {}
    for kind in kinds:
        layers, _, number = kind.name.rpartition(".")
        kept.setdefault(layers, []).append(getattr(transformer, layers)[int(number)])
    for layers, blocks in kept.items():
        setattr(transformer, layers, nn.ModuleList(blocks))
    return [block for blocks in kept.values() for block in blocks]


def fill(model: nn.Module) -> None:
    """Gives every tensor on the meta device memory of the device at hand, which under a fake mode takes none."""
    for module in model.modules():
        held: tuple[Any, ...] = (module._parameters, module._buffers)
        for tensors in held:
            for name, tensor in tensors.items():
                if tensor is None:
                    continue
                made: Tensor = torch.empty(tensor.shape, dtype=tensor.dtype)
                trained = tensor.requires_grad
                tensors[name] = nn.Parameter(made, requires_grad=trained) if isinstance(tensor, nn.Parameter) else made
