"""One sample and its row: tensors as raw little-endian float32, which is all that FastVideo's reader decodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import fail
from ..sources.record import UnusableClip
from .schema import Kind, columns, tensors

if TYPE_CHECKING:
    from torch import Tensor

    Array = np.ndarray | Tensor

STORED = "float32"  # what the dtype columns say
_RANKS = {"vae_latent": (4, "[C, T, h, w]"), "text_embedding": (2, "[L, D]")}


@dataclass(frozen=True, eq=False)
class Sample:
    """One example: tensors as NumPy or PyTorch arrays of any real type (read back as float32), and what is known of it.

    `vae_latent` is [C, T, h, w], not normalised; `text_embedding` is [L, D], not padded. Text-only samples have no
    latent; parts of an image that a model has no use for are None. Width and height are in px.
    """

    id: str
    caption: str
    text_embedding: Array
    vae_latent: Array | None = None
    clip_feature: Array | None = None
    first_frame_latent: Array | None = None
    pil_image: Array | None = None
    file_name: str = ""
    media_type: str = "video"
    width: int = 0
    height: int = 0
    duration_sec: float = 0.0
    fps: float = 0.0

    @property
    def num_frames(self) -> int:
        """Latent frames; 0 without a latent."""
        return 0 if self.vae_latent is None else int(self.vae_latent.shape[1])


def to_row(sample: Sample, kind: Kind) -> dict[str, Any]:
    """The sample as a row of a file of this kind; raises UserError for a tensor that is missing, misshapen or not finite."""
    row: dict[str, Any] = {}
    for name in tensors(kind):
        array = _checked(sample, name)
        row[f"{name}_bytes"] = b"" if array is None else array.tobytes()
        row[f"{name}_shape"] = [] if array is None else list(array.shape)
        row[f"{name}_dtype"] = "" if array is None else STORED
    for name, _ in columns(kind):
        if name not in row:
            value = getattr(sample, name)
            # a file name of undecodable bytes has lone surrogates, which no string column takes
            row[name] = value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
    return row


def _checked(sample: Sample, name: str) -> np.ndarray | None:
    value = getattr(sample, name)
    if value is None:
        if name in _RANKS:
            raise fail(f"sample {sample.id}", f"has no {name}.", "Give one, or write another kind of file.")
        return None
    rank, axes = _RANKS.get(name, (len(value.shape), ""))
    if len(value.shape) != rank or 0 in value.shape:
        raise fail(f"sample {sample.id}", f"{name} has shape {list(value.shape)}.", f"It must be {axes or 'of at least one value'}.")
    array = float32(value)
    if not np.isfinite(array).all():
        raise fail(f"sample {sample.id}", f"{name} holds values that float32 cannot hold or that are not finite.", "Leave this sample out.")
    return array


def float32(value: Array) -> np.ndarray:
    """Contiguous little-endian float32 with the values of an array of any real type, bfloat16 included."""
    if not isinstance(value, np.ndarray):
        value = value.detach().float().cpu().numpy()
    with np.errstate(over="ignore"):  # what overflows becomes infinite, and is refused for that
        return np.ascontiguousarray(value, dtype="<f4")


def from_row(row: Mapping[str, Any], kind: Kind) -> Sample:
    """The row's sample, tensors bit for bit; raises UnusableClip naming the column that does not hold what it should."""
    arrays = {name: tensor(row, name) for name in tensors(kind)}
    for name in _RANKS.keys() & arrays.keys():
        if arrays[name] is None:
            raise UnusableClip(f"{name}_bytes is empty")
    about = {name: row[name] for name, _ in columns(kind) if name in Sample.__dataclass_fields__ and row.get(name) is not None}
    about.setdefault("caption", row.get("prompt") or "")  # its name in old files
    return Sample(**{"id": "", **about, **arrays})


def tensor(row: Mapping[str, Any], name: str) -> np.ndarray | None:
    """One tensor of a row as float32, None where its bytes are empty; raises UnusableClip if shape and bytes disagree."""
    data, shape, dtype = (row.get(f"{name}_{part}") for part in ("bytes", "shape", "dtype"))
    if not data:
        return None
    if not shape or not all(isinstance(size, int) and size > 0 for size in shape):
        raise UnusableClip(f"{name}_shape is {shape}")
    if len(data) != 4 * math.prod(shape):
        said = f" ({name}_dtype says {dtype})" if dtype and dtype != STORED else ""
        raise UnusableClip(f"{name} has {len(data)} bytes; float32 of shape {shape} has {4 * math.prod(shape)}{said}")
    return np.frombuffer(data, "<f4").reshape(shape).astype(np.float32)
