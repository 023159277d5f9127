"""GGUF files, through the package `gguf` where it is installed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import fail
from ..packages import require
from .tensor_file import GGUF, TORCH, Stored

if TYPE_CHECKING:
    from torch import Tensor

ORIGINAL_SHAPE = "comfy.gguf.orig_shape."  # before a tensor's name: its shape where GGUF could not hold it


class GgufFile:
    """A GGUF file as a TensorFile; the rows of block types are bytes. Raises UserError if it cannot be read, or its reader is missing."""

    def __init__(self, path: Path) -> None:
        require("gguf")
        from gguf import GGUFReader

        self.path, self.metadata = path, dict[str, str]()
        try:
            reader = GGUFReader(path)
            self.tensors = {tensor.name: _stored(tensor, _original(reader, tensor.name)) for tensor in reader.tensors}
        except (ArithmeticError, LookupError, OSError, TypeError, ValueError) as error:
            raise fail(str(path), f"is not a readable GGUF file: {error}.", "Download it again.") from None
        self._data: dict[str, Any] = {tensor.name: tensor.data for tensor in reader.tensors}

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Tensor:
        """Rows `start` to `stop` of a tensor: numbers in its shape, of block types uint8 [rows, bytes]."""
        import numpy as np
        import torch

        stored = self.tensors[name]
        rows = stored.shape[0] if stored.shape else 1
        data = np.ascontiguousarray(self._data[name]).reshape(rows, -1)[start:stop]
        tensor = torch.from_numpy(data.view(np.uint8).copy())
        if stored.dtype.startswith(GGUF):
            return tensor
        return tensor.view(getattr(torch, TORCH[stored.dtype])).reshape(len(data), *stored.shape[1:])


def _stored(tensor: Any, original: tuple[int, ...] | None) -> Stored:
    """A tensor's entry; raises ValueError if its shape does not hold its numbers."""
    kind = tensor.tensor_type.name
    shape = original or tuple(int(size) for size in reversed(tensor.shape))
    if math.prod(shape) != int(tensor.n_elements) or 0 in shape:
        raise ValueError(f"'{tensor.name}' of {int(tensor.n_elements)} numbers cannot be {'x'.join(map(str, shape))}")
    return Stored(kind if kind in TORCH else GGUF + kind, shape, int(tensor.data_offset), int(tensor.data_offset + tensor.n_bytes))


def _original(reader: Any, name: str) -> tuple[int, ...] | None:
    field = reader.get_field(ORIGINAL_SHAPE + name)
    return tuple(int(field.parts[part][0]) for part in field.data) if field is not None else None
