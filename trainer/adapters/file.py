"""LoRA files: in ComfyUI's names, alpha inside, metadata complete, every key matched on reading; and in diffusers' names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import fail
from ..files import complete_or_absent
from .comfy import from_comfy, to_comfy
from .weights import LoraPair, LoraWeights, check_finite

if TYPE_CHECKING:
    from torch import Tensor

    from ..models.base import ModelFamily

SUFFIXES = {  # what others call the two halves -> ours
    ".lora_A.weight": "down",
    ".lora_B.weight": "up",
    ".lora_down.weight": "down",
    ".lora_up.weight": "up",
    ".alpha": "alpha",
}


def save_lora(weights: LoraWeights, family: ModelFamily, file: Path, metadata: dict[str, str]) -> None:
    """Writes ComfyUI's form, reads it back and compares; the file appears complete or not at all.

    Where the family folds alpha, what is read back has its rank as alpha and the same effect.
    Raises UserError if the folder cannot be written, AssertionError if what was read back differs.
    """
    import torch

    check_finite(weights, str(file))
    tensors: dict[str, Tensor] = {}
    for module, pair in to_comfy(weights, family).items():
        name, folded = family.keys.prefix + module, family.spec.folds_alpha
        tensors[f"{name}.lora_A.weight"] = pair.down.contiguous()
        tensors[f"{name}.lora_B.weight"] = (pair.up * pair.scale if folded else pair.up).contiguous()
        if not folded:
            tensors[f"{name}.alpha"] = torch.tensor(float(pair.alpha))
    _write(file, tensors, metadata, lambda beside: _require_same(load_lora(beside, family), weights))


def save_diffusers_lora(weights: LoraWeights, file: Path, metadata: dict[str, str]) -> None:
    """Writes the form that any diffusers pipeline reads, for models of which it does not read ComfyUI's.

    Diffusers takes alpha for the rank, and both to be those of the first layer: alpha is folded into the upper half,
    and all layers are filled up with zeros to one rank. Raises UserError if the folder cannot be written.
    """
    from torch.nn.functional import pad

    rank = max(pair.rank for pair in weights.pairs.values())
    tensors: dict[str, Tensor] = {}
    for module, pair in weights.pairs.items():
        lacking = rank - pair.rank
        tensors[f"transformer.{module}.lora_A.weight"] = pad(pair.down, (0, 0, 0, lacking)).contiguous()
        tensors[f"transformer.{module}.lora_B.weight"] = pad(pair.up * pair.scale, (0, lacking)).contiguous()
    _write(file, tensors, metadata, lambda beside: None)


def _write(file: Path, tensors: dict[str, Tensor], metadata: dict[str, str], check: Callable[[Path], None]) -> None:
    """Writes the tensors, once `check` of the file beside has passed; raises UserError if the folder cannot be written."""
    from safetensors.torch import save

    try:
        with complete_or_absent(file) as beside:
            beside.write_bytes(save(tensors, metadata))
            check(beside)
    except OSError as error:
        raise fail(str(file), f"cannot be written: {error}.", "Free space or give the folder write permission, then run again.") from None


def _require_same(back: LoraWeights, weights: LoraWeights) -> None:
    """Asserts that what was read is what was written; of fused modules, ranks that are zero in all rows do not come back."""
    for name, pair in weights.pairs.items():
        if name not in back.pairs:
            assert not pair.up.any(), name
            continue
        read = back.pairs[name]
        assert read.equals(pair) or _alike(read, pair), name
    assert back.pairs.keys() <= weights.pairs.keys()


def _alike(read: LoraPair, pair: LoraPair) -> bool:
    """Whether both change a layer alike, to 1e-5 of the Frobenius norm; the layer's whole matrices, which are large, are not made."""
    import torch

    (up, down), (up_read, down_read) = ((p.up.double() * p.scale, p.down.double()) for p in (pair, read))
    difference = _square(torch.cat([up, -up_read], 1), torch.cat([down, down_read]))
    return difference <= 1e-10 * _square(up, down)


def _square(up: Tensor, down: Tensor) -> float:
    """The squared Frobenius norm of up · down."""
    return float(((up.T @ up) * (down @ down.T)).sum())


def load_lora(file: Path, family: ModelFamily) -> LoraWeights:
    """Reads a LoRA file in ComfyUI's names; raises UserError listing keys that do not belong to this family."""
    halves: dict[str, dict[str, Tensor]] = {}
    unknown = []
    for key, tensor in read_tensors(file).items():
        module, kind = _split(key)
        name = module.removeprefix(family.keys.prefix)
        try:
            family.keys.found(name)
            halves.setdefault(name, {})[kind] = tensor
        except KeyError:
            unknown.append(key)
    incomplete = [name for name, found in halves.items() if not _whole(found)]
    if unknown or incomplete or not halves:
        sample = (unknown or incomplete or ["no keys at all"])[0]
        raise fail(
            str(file),
            f"is not a {family.spec.family} LoRA in ComfyUI's names: "
            f"{len(unknown)} unknown keys, {len(incomplete)} incomplete layers (such as {sample}).",
            "Choose a LoRA trained for this model.",
        )
    pairs = {name: _pair(found, str(file)) for name, found in halves.items()}
    try:
        weights = from_comfy(pairs, family)
    except KeyError as error:
        raise fail(str(file), f"has a layer of another size ({error.args[0]}).", "Choose a LoRA trained for this model.") from None
    check_finite(weights, str(file))
    return weights


def read_tensors(file: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file; raises UserError if it cannot be read."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(file.read_bytes())  # not mapped: Windows cannot replace a file that is
    except FileNotFoundError:
        raise fail(str(file), "does not exist.", "Choose a .safetensors LoRA file.") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise fail(str(file), f"is not a readable .safetensors file: {error}.", "Download or export it again.") from None


def _pair(found: dict[str, Tensor], where: str) -> LoraPair:
    import torch

    alpha = float(found["alpha"]) if "alpha" in found else float(found["down"].shape[0])
    if not 0 < alpha < float("inf"):
        raise fail(where, f"has alpha {alpha}: it must be a number above zero.", "Choose another LoRA, or export this one again.")
    return LoraPair(found["down"].to(torch.float32), found["up"].to(torch.float32), alpha)


def _whole(found: dict[str, Tensor]) -> bool:
    """Whether a layer has both halves, of the same rank, and at most one alpha."""
    if not {"down", "up"} <= found.keys() or not found["down"].dim() == found["up"].dim() == 2:
        return False
    return found["down"].shape[0] == found["up"].shape[1] and ("alpha" not in found or found["alpha"].numel() == 1)


def _split(key: str) -> tuple[str, str]:
    for suffix, kind in SUFFIXES.items():
        if key.endswith(suffix):
            return key.removesuffix(suffix), kind
    return key, "unknown"
