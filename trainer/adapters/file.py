"""Writing LoRA files: each complete or absent, read back and compared, with the hash of its own tensors inside."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import fail
from ..files import complete_or_absent
from .conventions import to_tensors
from .names import Convention
from .reading import open_lora, read_lora
from .weights import LoraWeights, check_finite

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ..models.base import ModelFamily

HASHES = ("modelspec.hash_sha256", "sshs_model_hash")  # of the file's own tensors, in ModelSpec 1.0.0 and in kohya's metadata
ALLOWED_ERROR = 1e-5  # relative, of what is read back


def load_lora(file: Path, family: ModelFamily) -> LoraWeights:
    """Reads a LoRA file in any convention; raises UserError for what is no LoRA of this family."""
    return read_lora(open_lora(file), family).weights


def save_lora(
    weights: LoraWeights, family: ModelFamily, file: Path, metadata: Mapping[str, str], convention: Convention = "comfyui",
    dtype: torch.dtype | None = None,
) -> None:  # fmt: skip
    """Writes a LoRA, reads it back and compares; the file appears complete or not at all.

    Where alpha is folded, what is read back has its rank as alpha and the same effect. `dtype` is used where it loses
    nothing. Raises UserError if the folder cannot be written, AssertionError if what was read back differs.
    """
    check_finite(weights, str(file))
    write_checked(packed(to_tensors(weights, family, convention, dtype), metadata), weights, family, file)


def write_checked(data: Sequence[bytes | memoryview], weights: LoraWeights, family: ModelFamily, file: Path) -> None:
    """Writes a packed LoRA if it reads back as `weights`; raises as `save_lora`."""
    try:
        with complete_or_absent(file) as beside:
            with beside.open("wb") as out:
                out.writelines(data)
            _require_same(load_lora(beside, family), weights)
    except OSError as error:
        raise fail(str(file), f"cannot be written: {error}.", "Free space or give the folder write permission, then run again.") from None


def packed(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Sequence[bytes | memoryview]:
    """A safetensors file in pieces, its metadata completed by the SHA-256 of all bytes after the header.

    ModelSpec writes it as hexadecimal digits after 0x, kohya's trainers (precalculate_safetensors_hashes) without that.
    """
    from safetensors.torch import save

    data = memoryview(save(dict(tensors)))
    start = 8 + int.from_bytes(data[:8], "little")
    digest = hashlib.sha256(data[start:]).hexdigest()
    header = {"__metadata__": {**metadata, **dict(zip(HASHES, (f"0x{digest}", digest), strict=True))}, **json.loads(bytes(data[8:start]))}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, data[start:]]


def _require_same(back: LoraWeights, weights: LoraWeights) -> None:
    """Asserts that what was read is what was written; of fused modules, ranks that are zero in all rows do not come back."""
    for name, pair in weights.pairs.items():
        if name not in back.pairs:
            assert not pair.up.any(), name
            continue
        read = back.pairs[name]
        assert read.equals(pair) or read.plus(pair, -1).size <= ALLOWED_ERROR * pair.size, name
    assert back.pairs.keys() <= weights.pairs.keys()
