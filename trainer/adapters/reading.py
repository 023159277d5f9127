"""Reading LoRA files in every convention: each layer is found among the family's, each alpha where its convention keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError, fail
from ..models.tensor_file import SafetensorsFile
from .comfy import parted
from .names import Convention, find_layer, foreign, split_key
from .peft_config import PeftConfig
from .recognition import misfit, refusal
from .weights import LoraPair, LoraWeights, check_finite

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ..models.base import ModelFamily
    from ..models.tensor_file import Stored

Halves = dict[str, "Tensor"]  # "down", "up" and, where it has one, "alpha"
FLOATING = ("F", "BF")  # how the types of numbers with a fraction begin
MOST_NAMED = 3  # layers that an error names


@dataclass(frozen=True)
class RawLora:
    """A file's layers under the names that it gives them."""

    file: Path
    layers: dict[str, Halves]
    metadata: dict[str, str]

    @property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """[out, in] of the layers."""
        return {name: (found["up"].shape[0], found["down"].shape[1]) for name, found in self.layers.items()}


@dataclass(frozen=True)
class LoraFile:
    """What a LoRA file holds, by the names of the family's modules, and how it held it."""

    weights: LoraWeights
    convention: Convention  # kohya stands for musubi too where their names are the same
    metadata: dict[str, str]
    dtype: torch.dtype


def open_lora(file: Path) -> RawLora:
    """A file's layers and metadata; raises UserError for a file that cannot be read or is no plain LoRA."""
    header = _header(file)
    _check_plain(file, header.tensors)
    layers: dict[str, Halves] = {}
    for key, tensor in _read(file).items():
        name, half = split_key(key)
        layers.setdefault(name, {})[half] = tensor
    return RawLora(file, layers, header.metadata or {})


def _check_plain(file: Path, stored: Mapping[str, Stored]) -> None:
    """Raises UserError unless a header tells of whole layers of a plain LoRA and of nothing else."""
    layers: dict[str, dict[str, Stored]] = {}
    others, doubled = [], []
    for key, tensor in stored.items():
        name, half = split_key(key)
        if not half:
            others.append(key)
        elif half in layers.setdefault(name, {}):
            doubled.append(key)
        else:
            layers[name][half] = tensor
    if kind := foreign(others):
        raise fail(str(file), f"holds {kind}, and only plain LoRA can be read.", "Choose a LoRA of up and down halves.")
    if others or not layers:
        found = f"is no LoRA: {len(others)} of its {len(stored)} tensors are no halves of LoRA layers{_such_as(others)}."
        raise fail(str(file), found, "Choose a .safetensors LoRA file.")
    if doubled:
        raise fail(str(file), f"holds layers twice{_such_as(doubled)}.", "Choose a file of one LoRA.")
    if broken := [name for name, found in layers.items() if not _whole(found)]:
        found = f"is not a whole LoRA: {len(broken)} of its {len(layers)} layers are incomplete or of unlike ranks{_such_as(broken)}."
        raise fail(str(file), found, "Download or export it again.")


def read_lora(raw: RawLora, family: ModelFamily) -> LoraFile:
    """The LoRA by the family's modules; raises UserError saying whose it is if it is another family's."""
    where = str(raw.file)
    config = PeftConfig.of(raw.file, raw.metadata)
    pairs: dict[str, LoraPair] = {}
    spoken: list[Convention] = []
    strangers = []
    for name, halves in raw.layers.items():
        try:
            place, convention = find_layer(name, family.keys)
        except KeyError:
            strangers.append(name)
            continue
        spoken.append(convention)
        alpha = _alpha((name, *place.modules), halves, config, where)
        try:
            made = parted(place, LoraPair(halves["down"].float(), halves["up"].float(), alpha).unfilled(), family)
        except KeyError:
            raise misfit(raw, family, name) from None
        if twice := made.keys() & pairs.keys():
            raise fail(where, f"holds the layer {min(twice)} twice, once as {name}.", "Choose a file of one LoRA.")
        pairs |= made
    if strangers:
        raise refusal(raw, family, strangers)
    weights = LoraWeights(pairs)
    check_finite(weights, where)
    return LoraFile(weights, max(spoken, key=spoken.count), raw.metadata, next(iter(raw.layers.values()))["up"].dtype)


def _read(file: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file; raises UserError if it cannot be read."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(file.read_bytes())  # not mapped: Windows cannot replace a file that is
    except (SafetensorError, OSError, ValueError) as error:
        raise fail(str(file), f"is not a readable .safetensors file: {error}.", "Download or export it again.") from None


def _header(file: Path) -> SafetensorsFile:
    """A file whose header is read, and nothing else of it; raises UserError if that cannot be."""
    try:
        return SafetensorsFile(file)
    except FileNotFoundError:
        raise fail(str(file), "does not exist.", "Choose a .safetensors LoRA file.") from None
    except UserError as error:
        found = f"is not a readable .safetensors file: it {error.problems[0].found}"
    except (OSError, ValueError, RecursionError) as error:
        found = f"is not a readable .safetensors file: {error}."
    raise fail(str(file), found, "Choose a .safetensors LoRA file, or download or export this one again.")


def _whole(found: Mapping[str, Stored]) -> bool:
    """Whether a layer has both halves, matrices of numbers of one rank, and at most one alpha."""
    if not {"down", "up"} <= found.keys() or not len(found["down"].shape) == len(found["up"].shape) == 2:
        return False
    if not all(half.dtype.startswith(FLOATING) and half.count for half in (found["down"], found["up"])):
        return False
    return found["down"].shape[0] == found["up"].shape[1] and ("alpha" not in found or found["alpha"].count == 1)


def _alpha(names: Sequence[str], halves: Halves, config: PeftConfig, where: str) -> float:
    """A layer's alpha: its tensor, else the configuration's by one of its names, else its rank; raises UserError unless above zero."""
    alpha = float(halves["alpha"]) if "alpha" in halves else config.alpha_of(names, halves["down"].shape[0])
    if not 0 < alpha < float("inf"):
        raise fail(where, f"has alpha {alpha}: it must be a number above zero.", "Choose another LoRA, or export this one again.")
    return alpha


def _such_as(names: Iterable[str]) -> str:
    first = list(names)[:MOST_NAMED]
    return f" (such as {', '.join(first)})" if first else ""
