"""StoredWeights: what a model's files hold quantised and a run leaves so, told from their headers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from ..models.base import ModelFamily


@dataclass(frozen=True)
class StoredWeights:
    """`form` that most of the quantised linear layers in blocks have ("": none is), and bytes of a weight of all linear layers there.

    `saved` are bytes that quantised layers outside of the blocks take less than in the run's precision.
    """

    form: str
    size: float
    saved: int = 0


def stored_weights(family: ModelFamily, dtype: torch.dtype) -> StoredWeights | None:
    """Those of a family's first transformer; None where all is loaded in `dtype`, in whatever precision the file holds it."""
    from .blocks import blocks_of

    part = family.spec.experts[0].part
    kept = family.files.kept_quantised(part, family.transformer_class, dtype)
    inside = tuple(f"{name}." for name in blocks_of(family.skeleton))
    forms: Counter[str] = Counter()
    held = linear = saved = 0
    for layer, (rows, columns) in family.layer_shapes.items():
        whole = rows * columns * dtype.itemsize
        form, size = kept.get(f"{layer}.weight", ("", whole))
        if layer.startswith(inside):
            held, linear = held + size, linear + rows * columns
            forms.update({form: rows * columns} if form else {})
        else:
            saved += whole - size
    form = max(forms, key=lambda form: forms[form], default="")
    return StoredWeights(form, held / linear, saved) if form or saved else None
