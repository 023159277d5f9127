"""The tensors of one part of a model inside a file, and what the quantised ones among them stand for.

Quantised layouts that are known: fp8 without scales; ComfyUI's older fp8_scaled (a tensor `scaled_fp8` marks the file, a layer
has `scale_weight` and may have `scale_input`); its newer one (`weight_scale`, `input_scale`, and a format in the layer's
`comfy_quant`, JSON as bytes, or in the file's metadata `_quantization_metadata`); GGUF's blocks. A weight is worth its stored
number times its scale; the scales of inputs only serve fp8 products and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import UserError, fail
from .shapes import Shapes
from .tensor_file import GGUF, TORCH, Stored, TensorFile, json_object

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ..memory.frozen import FrozenWeight

SCALES = (".scale_weight", ".weight_scale")  # of a layer's weight: the older layout's, the newer one's
UNUSED = (".scale_input", ".input_scale", ".comfy_quant")
MARKERS = ("scaled_fp8",)
FP8 = {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
EIGHT_BITS = (*FP8, "I8", "U8")
CHUNK = 16 << 20  # bytes of a tensor that are converted at once
CURE = "Choose the bf16, fp16, fp8 or fp8_scaled file of this model, or a GGUF."


class StoredPart:
    """The tensors below a prefix, under their names without it; those that only tell of quantisation are not among them.

    Raises UserError for a quantised layout that is not known.
    """

    def __init__(self, file: TensorFile, prefix: str = "") -> None:
        self.file, self.prefix = file, prefix
        names = [name.removeprefix(prefix) for name in file.tensors if name.startswith(prefix)]
        self._scales = {name.removesuffix(end) + ".weight": name for name in names for end in SCALES if name.endswith(end)}
        told = {*self._scales.values(), *(name for name in names if name.endswith(UNUSED) or name in MARKERS)}
        self.names = [name for name in names if name not in told]
        self._check(names)

    @property
    def shapes(self) -> Shapes:
        """The shapes of all tensors."""
        return Shapes({name: self._stored(name).shape for name in self.names}, self.file.metadata)

    def is_quantised(self, name: str) -> bool:
        """Whether a tensor is stored in less than its precision."""
        kind = self._stored(name).dtype
        return kind in FP8 or kind.startswith(GGUF)

    def in_order(self) -> list[str]:
        """All names in the order in which they lie in the file."""
        return sorted(self.names, key=lambda name: self._stored(name).start)

    def read(self, name: str, dtype: torch.dtype | None) -> Tensor:
        """A tensor's values in `dtype`, its own if None or if it holds whole numbers; a piece of it is converted at a time."""
        import torch

        stored, kind = self._stored(name), self._stored(name).dtype
        own = torch.float32 if kind not in TORCH else getattr(torch, TORCH[kind])
        dtype = dtype if dtype is not None and own.is_floating_point else own
        if own == dtype and name not in self._scales and kind in TORCH:
            return self.file.read(self.prefix + name)
        made = torch.empty(stored.shape, dtype=dtype)
        if not stored.shape:
            return made.copy_(self.file.read(self.prefix + name))
        scale = self._scale(name)
        for start, stop in self._pieces(name):
            rows = self.file.read(self.prefix + name, start, stop)
            values = rows if kind in TORCH else self._gguf(name, rows)
            part = scale[start:stop] if scale.dim() else scale
            made[start:stop] = values if name not in self._scales else values.float().mul_(part)
        return made

    def frozen(self, name: str) -> FrozenWeight:
        """A quantised weight [out, in] as it is stored."""
        import torch

        from ..memory.frozen import FrozenWeight

        return FrozenWeight(self.file.read(self.prefix + name).view(torch.uint8), self._scale(name), self.form(name))

    def form(self, name: str) -> str:
        """How a quantised tensor is stored, as FrozenWeight calls it."""
        kind = self._stored(name).dtype
        return FP8.get(kind, kind)

    def size(self, name: str) -> int:
        """A tensor's bytes in the file."""
        return self._stored(name).end - self._stored(name).start

    def raw(self, name: str) -> bytes:
        """A tensor's bytes."""
        import torch

        return self.file.read(self.prefix + name).reshape(-1).view(torch.uint8).numpy().tobytes()

    def _stored(self, name: str) -> Stored:
        return self.file.tensors[self.prefix + name]

    def _scale(self, name: str) -> Tensor:
        """A weight's scale, [] or [out, 1] float32."""
        import torch

        if name not in self._scales:
            return torch.ones(())
        scale = self.file.read(self.prefix + self._scales[name]).float()
        return scale.reshape(-1, 1) if scale.numel() > 1 else scale.reshape(())

    def _pieces(self, name: str) -> Iterator[tuple[int, int]]:
        stored = self._stored(name)
        rows = max(CHUNK * stored.shape[0] // max(stored.end - stored.start, 1), 1)
        yield from ((start, min(start + rows, stored.shape[0])) for start in range(0, stored.shape[0], rows))

    def _gguf(self, name: str, rows: Tensor) -> Tensor:
        from ..memory.frozen import gguf_values

        return gguf_values(rows, self._stored(name).dtype.removeprefix(GGUF)).reshape(len(rows), *self._stored(name).shape[1:])

    def _check(self, names: list[str]) -> None:
        """Raises UserError for formats, scales and companions of 8-bit weights that are not known."""
        for layer, form in self._formats(names):
            if form not in FP8.values():
                raise self._unknown(f"'{layer}' is quantised as {form}")
        for name in self.names:
            if (kind := self._stored(name).dtype) not in TORCH and not kind.startswith(GGUF):
                raise self._unknown(f"'{name}' is of type {kind}")
        for weight, scale in self._scales.items():
            if weight not in names:
                raise self._unknown(f"'{scale}' is the scale of a weight that is not there")
            if not self._stored(weight).shape:
                raise self._unknown(f"'{scale}' is the scale of a single number")
            rows, count = self._stored(weight).shape[0], self._stored(scale).count
            if count not in (1, rows):
                raise self._unknown(f"'{scale}' has {count} numbers for {rows} rows")
        small = {name.removesuffix(".weight") for name in names if name.endswith(".weight") and self._stored(name).dtype in EIGHT_BITS}
        for name in self.names:
            layer, _, own = name.rpartition(".")
            kind = self._stored(name).dtype
            if (layer in small and own not in ("weight", "bias")) or (own == "weight" and layer in small and kind not in FP8):
                raise self._unknown(f"'{name}' of type {kind} tells of a quantisation")

    def _formats(self, names: list[str]) -> Iterator[tuple[str, str]]:
        """Layers and the formats that the file says they have."""
        for name in names:
            if name.endswith(".comfy_quant"):
                yield name.removesuffix(".comfy_quant"), _format(_parsed(self.raw(name)))
        layers = _parsed(self.file.metadata.get("_quantization_metadata", "")).get("layers", {})
        if isinstance(layers, Mapping):
            yield from ((name, _format(told)) for name, told in layers.items() if name.startswith(self.prefix))

    def _unknown(self, found: str) -> UserError:
        return fail(str(self.file.path), f"is quantised in a way that is not known here: {found}.", CURE)


def _format(told: object) -> str:
    return str(told.get("format", "nothing known")) if isinstance(told, Mapping) else "nothing known"


def _parsed(text: str | bytes) -> dict[str, Any]:
    """A JSON object, empty if it is none."""
    try:
        return json_object(text)
    except ValueError:
        return {}
