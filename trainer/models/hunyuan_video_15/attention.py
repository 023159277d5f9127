"""Attention of video and text that masks the padding of the texts, and gets no mask where there is none."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn.functional import pad

from ..hunyuan_video.attention import MaskedAttention
from ..text_mask import TextMask


class KeyMaskedAttention(MaskedAttention):
    """The processor of the first HunyuanVideo, which computes the same and takes any mask.

    Its successor's makes a mask of every query with every key, even where nothing is masked. What padding is told differs
    from that, and nothing reads it: a mask of the keys alone, [B, 1, 1, N], does for the rest.
    """

    def __call__(  # type: ignore[override]
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        image_rotary_emb: Any = None,
    ) -> Any:
        """Video and text after attention; the mask [B, L] is true where tokens of the text count."""
        mask = None
        if attention_mask is not None and self.text_mask.used:
            mask = pad(attention_mask.bool(), (hidden_states.shape[1], 0), value=True)[:, None, None]
        return super().__call__(attn, hidden_states, encoder_hidden_states, mask, image_rotary_emb)


def mask_where_padded(transformer: Any) -> None:
    """Gives the transformer a `text_mask`, which its blocks and its reading of the text heed."""
    transformer.text_mask = text_mask = TextMask()
    for block in transformer.transformer_blocks:
        block.attn.set_processor(KeyMaskedAttention(text_mask))
    transformer.context_embedder.register_forward_pre_hook(text_mask.left_out)
