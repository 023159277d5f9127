"""Files of any size that hold a header and nothing else: the disk keeps no bytes of what was never written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path

from trainer.models.tensor_file import BITS

Shape = tuple[int, ...]


def write_header(file: Path, shapes: Mapping[str, Shape], dtype: str = "F16", own: Mapping[str, str] | None = None) -> Path:
    """A safetensors file of tensors of these shapes, all zero; `own` gives the types of those that are not `dtype`."""
    header: dict[str, object] = {}
    place = 0
    for name, shape in shapes.items():
        kind = (own or {}).get(name, dtype)
        end = place + prod(shape) * BITS[kind] // 8
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header).encode()
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        out.truncate(8 + len(text) + place)
    return file


def with_old_scales(shapes: Mapping[str, Shape]) -> tuple[dict[str, Shape], dict[str, str]]:
    """The same tensors with all matrices in fp8 and scales as in ComfyUI's fp8_scaled files, and the types of them."""
    layers = [name.removesuffix(".weight") for name, shape in shapes.items() if name.endswith(".weight") and len(shape) == 2]
    scales = {f"{layer}.scale_weight": (1,) for layer in layers} | {f"{layer}.scale_input": (1,) for layer in layers}
    types = {f"{layer}.weight": "F8_E4M3" for layer in layers} | dict.fromkeys(scales, "F32") | {"scaled_fp8": "F8_E4M3"}
    return {**shapes, **scales, "scaled_fp8": (2,)}, types
