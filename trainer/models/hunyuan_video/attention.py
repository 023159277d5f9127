"""Attention that gets the mask of the texts only where these are padded."""

from __future__ import annotations

from typing import Any

from diffusers.models.transformers.transformer_hunyuan_video import HunyuanVideoAttnProcessor2_0
from torch import Tensor

from ..text_mask import TextMask


class MaskedAttention(HunyuanVideoAttnProcessor2_0):
    """The processor of diffusers, whose mask is left out where no text is padded."""

    def __init__(self, text_mask: TextMask) -> None:
        super().__init__()
        self.text_mask = text_mask

    def __call__(  # type: ignore[override]
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        image_rotary_emb: Any = None,
    ) -> Any:
        """Video and text after attention, see the processor of diffusers."""
        mask = attention_mask if self.text_mask.used else None
        return super().__call__(attn, hidden_states, encoder_hidden_states, mask, image_rotary_emb)


def mask_where_padded(transformer: Any) -> None:
    """Gives a transformer of HunyuanVideo's blocks a `text_mask`, which its blocks and its reading of the text heed."""
    transformer.text_mask = text_mask = TextMask()
    for block in (*transformer.transformer_blocks, *transformer.single_transformer_blocks):
        block.attn.set_processor(MaskedAttention(text_mask))
    transformer.context_embedder.register_forward_pre_hook(text_mask.left_out)
