"""One LoRA file into another convention, its metadata carried over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import fail
from ..files import kind_of
from .conventions import IMPLEMENTATIONS, to_tensors
from .file import HASHES, packed, write_checked
from .names import LABELS, Convention
from .peft_config import METADATA
from .reading import LoraFile, RawLora, open_lora, read_lora
from .recognition import family_of, require_fit
from .weights import LoraWeights, check_changed, check_finite

if TYPE_CHECKING:
    import torch

    from ..models.base import ModelFamily

UNTRUE = (*HASHES, *METADATA, "sshs_legacy_hash")  # of another file's tensors, or of alpha where it is no more


@dataclass(frozen=True)
class Written:
    """A file that was made of others."""

    file: Path
    family: str
    weights: LoraWeights
    source: str  # what it was made of
    convention: Convention

    def __str__(self) -> str:
        what = f"{len(self.weights.pairs)} layers of {self.family}, {self.weights}"
        return f"{self.source} -> {LABELS[self.convention]}: {what}\n{self.file}"


def convert(file: Path, convention: Convention, output: Path, model: ModelFamily | str = "") -> Written:
    """Writes a LoRA file in another convention; without `model`, a model or a family's name, that is told from its layers.

    Raises UserError for files that are no plain LoRA or another family's, and if `output` exists and is another LoRA.
    """
    raw = open_lora(file)
    family = family_of(raw, model)
    found = read_fitting(raw, family, model)
    check_changed(found.weights, str(file))
    write(found.weights, family, output, found.metadata, convention, found.dtype)
    return Written(output, family.spec.family, found.weights, f"{file.name}, {LABELS[found.convention]}", convention)


def read_fitting(raw: RawLora, family: ModelFamily, model: ModelFamily | str) -> LoraFile:
    """The LoRA by the family's modules; raises UserError, if a `model` and not only its family's name is given, unless it fits that."""
    found = read_lora(raw, family)
    if not isinstance(model, str):
        require_fit(found.weights, model, str(raw.file))
    return found


def require_new(output: Path) -> None:
    """Raises UserError if there is a file of this name: LoRA are not overwritten."""
    if kind_of(output):
        raise fail(str(output), "exists already.", "Give another name; LoRA files are not overwritten.")


def write(
    weights: LoraWeights, family: ModelFamily, output: Path, metadata: Mapping[str, str], convention: Convention,
    dtype: torch.dtype | None = None,
) -> None:  # fmt: skip
    """Writes what was made of other files, with their metadata put right; the same again changes nothing."""
    check_finite(weights, str(output))
    data = packed(to_tensors(weights, family, convention, dtype), carried(metadata, weights, family, convention))
    if kind_of(output) != "file" or output.read_bytes() != b"".join(data):
        require_new(output)
        write_checked(data, weights, family, output)


def carried(metadata: Mapping[str, str], weights: LoraWeights, family: ModelFamily, convention: Convention) -> dict[str, str]:
    """A source's metadata without what is no more true, and with what must be there."""
    kept = {name: value for name, value in metadata.items() if name not in UNTRUE}
    missing = {
        "modelspec.sai_model_spec": "1.0.0",
        "modelspec.architecture": family.architecture,
        "ss_network_module": "networks.lora",
        "ss_base_model_version": family.spec.family,
    }
    return {
        **missing, **kept,
        "format": "pt",
        "modelspec.implementation": IMPLEMENTATIONS[convention],
        "ss_network_dim": str(max(rank for rank, _ in weights.strengths)),
        "ss_network_alpha": str(max(alpha for _, alpha in weights.strengths)),
    }  # fmt: skip
