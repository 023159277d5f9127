"""A transformer's weights one tensor at a time, by their names in diffusers, from a model's folder or a single file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..errors import fail
from ..models.key_map import single

if TYPE_CHECKING:
    from torch import Tensor

    from ..models.base import ModelFamily
    from ..models.key_map import Place

PREFIXES = ("model.diffusion_model.", "diffusion_model.", "model.", "transformer.", "")  # before the names in a single file
SCALES = (".scale_weight", ".weight_scale", ".comfy_quant", "scaled_fp8")


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
    """A transformer of an opened model."""

    def __init__(self, family: ModelFamily, part: str) -> None:
        self._family, self._part = family, part

    @cached_property
    def names(self) -> set[str]:
        """Those of a model of this configuration."""
        return set(self._family.skeleton.state_dict())

    def tensor(self, name: str) -> Tensor:
        """A tensor; raises UserError if the files lack it."""
        return self._family.files.tensor(self._part, name)


class FileWeights:
    """A .safetensors file of a transformer in ComfyUI's names or in diffusers'; raises UserError for anything else, and if quantised."""

    def __init__(self, file: Path, family: ModelFamily) -> None:
        self._file, self._family = file, family
        self._last: tuple[str, dict[str, Tensor]] = ("", {})
        keys = _keys(file)
        if told := next((key for key in keys if key.endswith(SCALES)), ""):
            raise fail(str(file), f"is quantised (it holds {told}).", "Choose the bf16, fp16 or fp32 file of this model.")
        readings = [self._read_as(look, keys) for look in (family.keys.found, self._own)]
        self._places = max(readings, key=len)  # of equals the first
        if not self._places:
            found = f"is no {family.spec.family} model: none of its {len(keys)} tensors is known{f', such as {keys[0]}' if keys else ''}."
            raise fail(str(file), found, "Choose a model of this family in ComfyUI's or diffusers' names.")

    @property
    def names(self) -> set[str]:
        """Those whose place is known."""
        return set(self._places)

    def tensor(self, name: str) -> Tensor:
        """A tensor, or its part of a fused one; raises UserError if the parts are not of the family's size."""
        from safetensors import safe_open

        key, place, parameter = self._places[name]
        if self._last[0] != key:
            with safe_open(self._file, "pt") as file:
                self._last = (key, self._parted(key, place, parameter, file.get_tensor(key)))
        return self._last[1][name]

    def _own(self, module: str) -> Place:
        self._family.keys.place(module)
        return single(module)

    def _read_as(self, look: Callable[[str], Place], keys: Sequence[str]) -> dict[str, tuple[str, Place, str]]:
        """Names in diffusers -> key, place and parameter, as far as `look` knows a key's module."""
        found = {}
        for key in keys:
            prefix = next(prefix for prefix in PREFIXES if key.startswith(prefix))
            module, dot, parameter = key.removeprefix(prefix).rpartition(".")
            for name, rest in ((f"{module}{dot}{parameter}", ""), (module, dot + parameter)):
                try:
                    place = look(name)
                except KeyError:
                    continue
                found |= {ours + rest: (key, place, rest) for ours in place.modules}
                break
        return found

    def _parted(self, key: str, place: Place, parameter: str, tensor: Tensor) -> dict[str, Tensor]:
        from ..models.key_tensors import swap_halves

        tensor = swap_halves(tensor) if place.swapped else tensor
        if len(place.modules) == 1:
            return {place.modules[0] + parameter: tensor}
        shapes = [self._family.layer_shapes.get(module, (0, 0)) for module in place.modules]
        rows = [shape[0] for shape in shapes]
        if sum(rows) != tensor.shape[0]:
            found = f"has {key} of {tensor.shape[0]} rows, and {self._family.spec.family} has {sum(rows)} there."
            raise fail(str(self._file), found, "Give the model's diffusers folder.")
        return dict(zip((module + parameter for module in place.modules), tensor.split(rows), strict=True))


def _keys(file: Path) -> list[str]:
    """The names of a safetensors file's tensors; raises UserError if it cannot be read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "pt") as opened:
            return list(opened.keys())
    except FileNotFoundError:
        raise fail(str(file), "does not exist.", "Give a diffusers model folder or a .safetensors file.") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise fail(str(file), f"is not a readable .safetensors file: {error}.", "Download it again.") from None
