"""LoRA files in ComfyUI's names: alpha inside, metadata complete, every key matched on reading."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import Problem, UserError, fail
from ..files import complete_or_absent

if TYPE_CHECKING:
    from torch import Tensor

    from ..models.base import ModelFamily

PREFIX = "diffusion_model."
SUFFIXES = {  # what others call the two halves -> ours
    ".lora_A.weight": "down",
    ".lora_B.weight": "up",
    ".lora_down.weight": "down",
    ".lora_up.weight": "up",
    ".alpha": "alpha",
}


@dataclass
class LoraWeights:
    """A LoRA by transformer module name: (down [rank, in], up [out, rank]), applied at alpha / rank."""

    pairs: dict[str, tuple[Tensor, Tensor]]
    rank: int
    alpha: float


def save_lora(weights: LoraWeights, family: ModelFamily, file: Path, metadata: dict[str, str]) -> None:
    """Writes ComfyUI's form, reads it back and compares; the file appears complete or not at all.

    Raises UserError if the folder cannot be written, AssertionError if what was read back differs.
    """
    import torch
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    for module, (down, up) in weights.pairs.items():
        name = PREFIX + family.comfy_name(module)
        tensors[f"{name}.lora_A.weight"] = down
        tensors[f"{name}.lora_B.weight"] = up
        tensors[f"{name}.alpha"] = torch.tensor(float(weights.alpha))
    check_finite(weights, str(file))
    try:
        with complete_or_absent(file) as beside:
            beside.write_bytes(save(tensors, metadata))
            _require_same(load_lora(beside, family), weights)
    except OSError as error:
        raise fail(str(file), f"cannot be written: {error}.", "Free space or give the folder write permission, then run again.") from None


def _require_same(back: LoraWeights, weights: LoraWeights) -> None:
    import torch

    assert back.pairs.keys() == weights.pairs.keys() and (back.rank, back.alpha) == (weights.rank, weights.alpha)
    assert all(torch.equal(a, b) for name, pair in weights.pairs.items() for a, b in zip(pair, back.pairs[name], strict=True))


def check_finite(weights: LoraWeights, where: str) -> None:
    """Raises UserError if the LoRA holds NaN or infinity."""
    import torch

    bad = [name for name, pair in weights.pairs.items() if not all(torch.isfinite(half).all() for half in pair)]
    if bad:
        raise fail(
            where,
            f"the LoRA is not finite in {len(bad)} layers (such as {bad[0]}).",
            "It cannot be used; train it at a lower learning rate.",
        )


def check_changed(weights: LoraWeights, where: str) -> None:
    """Raises UserError if the LoRA would change nothing, every up half being zero."""
    if not any(up.any() for _, up in weights.pairs.values()):
        raise fail(where, "the LoRA is all zero, it would change nothing.", "Train more steps or raise the learning rate.")


def load_lora(file: Path, family: ModelFamily) -> LoraWeights:
    """Reads a LoRA file in ComfyUI's names; raises UserError listing keys that do not belong to this family."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(file.read_bytes())  # not mapped: Windows cannot replace a file that is
    except FileNotFoundError:
        raise fail(str(file), "does not exist.", "Choose a .safetensors LoRA file.") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise fail(str(file), f"is not a readable .safetensors file: {error}.", "Download or export it again.") from None
    halves: dict[str, dict[str, Tensor]] = {}
    unknown = []
    for key, tensor in tensors.items():
        module, kind = _split(key)
        try:
            halves.setdefault(family.module_name(module.removeprefix(PREFIX)), {})[kind] = tensor
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
    ranks = {found["down"].shape[0] for found in halves.values()}
    alphas = {float(found["alpha"]) if "alpha" in found else float(found["down"].shape[0]) for found in halves.values()}
    if len(ranks) > 1 or len(alphas) > 1:
        raise fail(
            str(file), f"has layers of different rank or alpha (ranks {sorted(ranks)}, alphas {sorted(alphas)}).", "Choose another LoRA."
        )
    alpha = alphas.pop()
    if not 0 < alpha < float("inf"):
        raise fail(str(file), f"has alpha {alpha}: it must be a number above zero.", "Choose another LoRA, or export this one again.")
    pairs = {name: (found["down"].to(torch.float32), found["up"].to(torch.float32)) for name, found in halves.items()}
    weights = LoraWeights(pairs, ranks.pop(), alpha)
    check_finite(weights, str(file))
    return weights


def require_modules(weights: LoraWeights, modules: Iterable[str], where: str) -> None:
    """Raises UserError if the LoRA has layers that the model lacks."""
    strangers = sorted(weights.pairs.keys() - set(modules))
    if strangers:
        raise UserError(
            Problem(where, f"has {len(strangers)} layers this model lacks (such as {strangers[0]}).", "It was trained for another size.")
        )


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
