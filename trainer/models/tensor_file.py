"""Files of tensors, read header first and then one tensor after the other: safetensors here, GGUF through `gguf_file`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import UserError, fail

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_HEADER = 100 << 20  # bytes, as the format's own library has it
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "I32": 32, "U32": 32, "I64": 64, "U64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4,
}  # fmt: skip
TORCH = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "F16": "float16", "BF16": "bfloat16",
    "F32": "float32", "F64": "float64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip
GGUF_MAGIC = b"GGUF"
GGUF = "gguf."  # before the name of a type that only GGUF has


@dataclass(frozen=True)
class Stored:
    """One tensor of a file: its type in the file's own words, its shape, and where its bytes lie."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def count(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)


class TensorFile(Protocol):
    """A file of named tensors whose header is known."""

    @property
    def path(self) -> Path:
        """Where it lies."""
        ...

    @property
    def tensors(self) -> Mapping[str, Stored]:
        """Its tensors by name."""
        ...

    @property
    def metadata(self) -> Mapping[str, str]:
        """What else its header says."""
        ...

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Tensor:
        """Rows `start` to `stop` of a tensor, as they are stored."""
        ...


def open_tensors(path: Path) -> TensorFile:
    """A file's header; raises UserError for what is missing, cut off, or neither safetensors nor GGUF."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(GGUF_MAGIC))
    except OSError as error:
        reason = "does not exist." if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror or error}."
        raise fail(str(path), reason, "Choose a .safetensors file.") from None
    if magic == GGUF_MAGIC:
        from .gguf_file import GgufFile

        return GgufFile(path)
    return SafetensorsFile(path)


def json_object(text: str | bytes) -> dict[str, Any]:
    """A JSON object; raises ValueError if the text is none, is not UTF-8 or is nested too deeply."""
    try:
        parsed = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(parsed, dict):
        raise ValueError("it is no object")
    return parsed


def read_object(file: Path) -> dict[str, Any]:
    """A file's JSON object; raises UserError if it holds none."""
    try:
        return json_object(file.read_bytes())
    except (ValueError, OSError) as error:
        raise fail(str(file), f"is not a readable JSON file: {error}.", "Download it again.") from None


class SafetensorsFile:
    """A safetensors file; its header is read and checked against the file's size, no tensor is touched."""

    def __init__(self, path: Path) -> None:
        self.path = path
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(LARGEST_HEADER, size - 8):
                raise self._unreadable(size, length)
            header = file.read(length)
        try:
            parsed = json_object(header)
            self.metadata: dict[str, str] = parsed.pop("__metadata__", None) or {}
            if not all(isinstance(value, str) for value in self.metadata.values()):
                raise ValueError
            begin = 8 + length
            self.tensors = {name: _stored(entry, begin) for name, entry in parsed.items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise fail(str(path), "is not a readable .safetensors file: its header is damaged.", "Download it again.") from None
        end = max((stored.end for stored in self.tensors.values()), default=begin)
        if end != size:
            raise self._cut_off(size, end)

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Tensor:
        """Rows `start` to `stop` of a tensor, as they are stored."""
        import torch

        stored = self.tensors[name]
        dtype, shape = getattr(torch, TORCH[stored.dtype]), stored.shape
        row = (stored.end - stored.start) // shape[0] if shape and shape[0] else stored.end - stored.start
        first, last = (0, 1) if not shape else (start, shape[0] if stop is None else stop)
        made = torch.empty((last - first) * row, dtype=torch.uint8)
        with self.path.open("rb", buffering=0) as file:
            file.seek(stored.start + first * row)
            _fill(file, memoryview(made.numpy().data), self.path)
        return made.view(dtype).reshape((last - first, *shape[1:]) if shape else ())

    def _unreadable(self, size: int, header: int) -> UserError:
        if size < 8 or header <= LARGEST_HEADER:
            return self._cut_off(size, 8 + header)
        cure = "Choose a .safetensors or .gguf file; pickled .pt, .pth and .ckpt files are not read."
        return fail(str(self.path), "is not a .safetensors file: it begins otherwise.", cure)

    def _cut_off(self, size: int, whole: int) -> UserError:
        found = f"has {size:,} bytes, and its header tells of {whole:,}: it is cut off or damaged."
        return fail(str(self.path), found, "Download it again.")


def _fill(file: object, view: memoryview, path: Path) -> None:
    while view:
        count = file.readinto(view)  # type: ignore[attr-defined]
        if not count:
            raise fail(str(path), "ended while it was read.", "Download it again.")
        view = view[count:]


def _stored(entry: Mapping[str, object], begin: int) -> Stored:
    """A header's entry; raises ValueError if its bytes are not as many as its shape needs."""
    dtype, shape, (start, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]  # type: ignore[misc,arg-type]
    stored = Stored(str(dtype), shape, begin + start, begin + end)
    if not 0 <= start <= end or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError
    if str(dtype) in BITS and stored.count * BITS[str(dtype)] != (end - start) * 8:
        raise ValueError
    return stored
