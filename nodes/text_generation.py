"""Captions from a CLIP that generates text, the vision-language models that core's Generate Text takes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..trainer.errors import fail

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

SAMPLING = {"do_sample": True, "temperature": 0.3, "top_k": 64, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.05}
NEEDED = "Load one that sees pictures, as Generate Text takes it: Gemma 3 or 4, Qwen3-VL, Qwen3.5."


class ClipCaptioner:
    """Asks a CLIP about the frames of one clip: [F, h, w, 3] uint8 to a caption; raises UserError if it sees no pictures.

    A model that takes a single picture is shown the frames side by side in one.
    """

    def __init__(self, clip: Any, instruction: str, max_length: int, seed: int) -> None:
        self._clip, self._instruction = clip, instruction.strip()
        self._sampling = {**SAMPLING, "max_length": max_length, "seed": seed}

    def __call__(self, frames: np.ndarray) -> str:
        """What it says, without its thoughts."""
        import torch

        images = torch.from_numpy(frames).float() / 255
        count = len(images)
        tokens = self._tokens(images, f"These {count} pictures are frames of one video clip, in the order of time." if count > 1 else "")
        seen = pictures(tokens)
        if not seen:
            raise fail("clip", "this text encoder does not look at pictures.", NEEDED)
        if seen < count:
            tokens = self._tokens(sheet(images), f"This picture shows {count} frames of one video clip, row by row in the order of time.")
        answer = self._clip.decode(self._clip.generate(tokens, **self._sampling))
        return answer.rpartition("</think>")[2].partition("<think>")[0].strip()

    def _tokens(self, images: Tensor, about: str) -> Any:
        text = f"{about} {self._instruction}".strip()
        return self._clip.tokenize(text, image=images, skip_template=False, min_length=1, thinking=False)


def pictures(tokens: dict[str, list[list[Any]]]) -> int:
    """How many pictures stand among the tokens; a text encoder that ignores pictures has none."""
    rows = (row for batch in tokens.values() for row in batch)
    return max((sum(isinstance(token[0], dict) and token[0].get("type") == "image" for token in row) for row in rows), default=0)


def sheet(images: Tensor) -> Tensor:
    """All pictures in one, row by row in a grid as square as it can be: [F, h, w, 3] -> [1, H, W, 3], free places black."""
    count, height, width, channels = images.shape
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    made = images.new_zeros(rows * columns, height, width, channels)
    made[:count] = images
    grid = made.reshape(rows, columns, height, width, channels).permute(0, 2, 1, 3, 4)
    return grid.reshape(1, rows * height, columns * width, channels)
