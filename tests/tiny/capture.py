"""What a diffusers pipeline computes while it samples, taken from its own calls of the transformer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class Point:
    """One step of a pipeline: model-space x [1, C, T, h, w], the noise level sigma, and the velocity noise - x0 that follows there.

    Of models of sections, `clip` is the video that it made, [C, T, h, w] as the cache holds latents, and x is section `section` of it.
    """

    x: Tensor
    sigma: float
    velocity: Tensor
    clip: Tensor | None = None
    section: int = 0


@dataclass
class Call:
    """One call of a transformer: its arguments by name and the first of its outputs."""

    kwargs: dict[str, Any]
    output: Tensor


@contextmanager
def calls_of(transformer: nn.Module) -> Iterator[list[Call]]:
    """Lists the calls made inside the block."""
    seen: list[Call] = []
    forward = transformer.forward

    def watched(*args: Any, **kwargs: Any) -> Any:
        assert not args, "pipelines name all arguments"
        output = forward(**kwargs)
        kept = {name: value.detach().clone() if isinstance(value, Tensor) else value for name, value in kwargs.items()}
        seen.append(Call(kept, (output[0] if isinstance(output, tuple) else output.sample).detach().clone()))
        return output

    transformer.forward = watched  # type: ignore[method-assign]
    try:
        with torch.no_grad():
            yield seen
    finally:
        transformer.forward = forward  # type: ignore[method-assign]
