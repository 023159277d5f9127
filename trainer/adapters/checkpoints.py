"""A transformer's weights one tensor at a time, by their names in diffusers, from a model's folder or a single file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..errors import fail
from ..models.key_map import single
from ..models.key_tensors import place_of, swap_halves
from ..models.recognition import TRANSFORMER_PREFIXES
from ..models.stored import StoredPart
from ..models.tensor_file import open_tensors

if TYPE_CHECKING:
    from torch import Tensor

    from ..models.base import ModelFamily
    from ..models.key_map import Place

Found = dict[str, tuple[str, "Place", str]]  # name in diffusers -> name in the file, the place of its module there, and what follows


class Weights(Protocol):
    """One transformer's tensors."""

    @property
    def names(self) -> set[str]:
        """Its tensors' names in diffusers."""
        ...

    def tensor(self, name: str) -> Tensor:
        """One of them."""
        ...


class FolderWeights:
    """A transformer of an opened model; it has the tensors of its configuration."""

    def __init__(self, family: ModelFamily, part: str) -> None:
        self._files, self._part = family.files, part
        self.names = set(family.skeleton.state_dict())

    def tensor(self, name: str) -> Tensor:
        """A tensor; raises UserError if the files lack it."""
        return self._files.tensor(self._part, name)


class FileWeights:
    """A single file of a transformer, quantised ones too, in ComfyUI's, the original release's or diffusers' names; else UserError."""

    def __init__(self, file: Path, family: ModelFamily) -> None:
        self._file, self._family = file, family
        self._last: tuple[str, dict[str, Tensor]] = ("", {})
        opened = open_tensors(file)
        looks = (family.keys.original.found, self._own)
        found = {
            (prefix, look): _found(opened.tensors, prefix, look) for look in looks for prefix in (*TRANSFORMER_PREFIXES, "transformer.")
        }
        prefix, look = max(found, key=lambda key: len(found[key]))  # of equals the first
        if not found[prefix, look]:
            first = next(iter(opened.tensors), "nothing")
            text = f"is no {family.spec.family} model: none of its {len(opened.tensors)} tensors is known, such as {first}."
            raise fail(str(file), text, "Choose a model of this family in ComfyUI's or diffusers' names.")
        self._part = StoredPart(opened, prefix)
        self._places = _found(self._part.names, "", look)

    @property
    def names(self) -> set[str]:
        """Those whose place is known."""
        return set(self._places)

    def tensor(self, name: str) -> Tensor:
        """A tensor, or its part of a fused one; raises UserError if the parts are not of the family's size."""
        import torch

        key, place, parameter = self._places[name]
        if self._last[0] != key:
            self._last = (key, self._parted(key, place, parameter, self._part.read(key, torch.float32)))
        return self._last[1][name]

    def _own(self, module: str) -> Place:
        self._family.keys.place(module)
        return single(module)

    def _parted(self, key: str, place: Place, parameter: str, tensor: Tensor) -> dict[str, Tensor]:
        tensor = swap_halves(tensor) if place.swapped else tensor
        if len(place.modules) == 1:
            return {place.modules[0] + parameter: tensor}
        rows = [self._family.layer_shapes.get(module, (0, 0))[0] for module in place.modules]
        if sum(rows) != tensor.shape[0]:
            found = f"has {key} of {tensor.shape[0]} rows, and {self._family.spec.family} has {sum(rows)} there."
            raise fail(str(self._file), found, "Give the model's diffusers folder.")
        return dict(zip((module + parameter for module in place.modules), tensor.split(rows), strict=True))


def _found(names: Iterable[str], prefix: str, look: Callable[[str], Place]) -> Found:
    """The names that begin with `prefix` and whose module, or which themselves, `look` knows."""
    found: Found = {}
    for name in (full.removeprefix(prefix) for full in names if full.startswith(prefix)):
        try:
            place, rest = place_of(look, name)
        except KeyError:
            continue
        found |= {ours + rest: (name, place, rest) for ours in place.modules}
    return found
