"""Padded texts: a batch has a mask only where its texts differ in length, which the host knows, and attention gets none elsewhere.

Attention without a mask can use the fastest kernels, and a mask of ones costs as much as any other. Diffusers' transformers make
a mask in any case; the processors of ours that share a `TextMask` leave it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .base import ModelInputs, kept

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MASK = "encoder_attention_mask"
TEXTS = {MASK: "encoder_hidden_states"}  # the argument that a mask is of


class TextMask:
    """Whether the attention of one transformer gets the mask, shared by its processors.

    It stays as it was told until the next call, as blocks that are computed again in the backward pass read it again.
    """

    used = True

    def left_out(self, _: object, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of a module, the last of which is the mask, without that if it is not used; a forward pre-hook."""
        return (*arguments[:-1], arguments[-1] if self.used else None)


def padded(embeddings: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """B texts [L, D] as one tensor [B, longest, D], and its mask [B, longest] bool where not all are as long as the longest."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    lengths = [len(embedding) for embedding in embeddings]
    hidden = pad_sequence(list(embeddings), batch_first=True)
    if min(lengths) == max(lengths):
        return hidden, None
    return hidden, torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]


def told(transformer: Any, inputs: ModelInputs, texts: Mapping[str, str] = TEXTS, device: torch.device | str | None = None) -> ModelInputs:
    """Tells the transformer's TextMask, its attribute `text_mask`, whether there are masks; if not, the inputs get those of ones.

    Diffusers' classes ask for them. They lie with the texts unless a device is named.
    """
    import torch

    transformer.text_mask.used = any(mask in inputs.kwargs for mask in texts)
    hidden = {mask: inputs.kwargs[text] for mask, text in texts.items() if mask not in inputs.kwargs}
    with kept():
        ones = {mask: torch.ones(text.shape[:2], dtype=torch.bool, device=device or text.device) for mask, text in hidden.items()}
    return replace(inputs, kwargs=inputs.kwargs | ones)
