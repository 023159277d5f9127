"""Mochi's attention of video and text over a whole batch.

Diffusers' processor (`MochiAttnProcessor2_0`) takes the examples one by one and asks the device for the length of each text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from diffusers.models.attention_dispatch import dispatch_attention_fn
from torch import Tensor
from torch.nn.functional import pad

from ..text_mask import TextMask

Norm = Callable[[Tensor], Tensor] | None


class JointAttention:
    """Attention of all tokens with those of the video and those of the text that are no padding.

    What padding is told differs from diffusers', where it is nothing, and nothing reads it.
    """

    _attention_backend = None  # diffusers' set_attention_backend sets it
    _parallel_config = None

    def __init__(self, text_mask: TextMask) -> None:
        self.text_mask = text_mask

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        attention_mask: Tensor,
        image_rotary_emb: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Video [B, N, D] and text [B, L, D'] after attention; the mask [B, L] is true where tokens count."""
        query, key, value = (layer(hidden_states).unflatten(2, (attn.heads, -1)) for layer in (attn.to_q, attn.to_k, attn.to_v))
        query, key = _normed(query, attn.norm_q), _normed(key, attn.norm_k)
        if image_rotary_emb is not None:
            query, key = _rotated(query, *image_rotary_emb), _rotated(key, *image_rotary_emb)
        layers = attn.add_q_proj, attn.add_k_proj, attn.add_v_proj
        text_query, text_key, text_value = (layer(encoder_hidden_states).unflatten(2, (attn.heads, -1)) for layer in layers)
        text_query, text_key = _normed(text_query, attn.norm_added_q), _normed(text_key, attn.norm_added_k)
        pairs = (query, text_query), (key, text_key), (value, text_value)
        length = hidden_states.shape[1]
        mask = pad(attention_mask.bool(), (length, 0), value=True)[:, None, None] if self.text_mask.used else None
        found = dispatch_attention_fn(
            *(torch.cat(pair, dim=1) for pair in pairs),
            attn_mask=mask,
            backend=self._attention_backend,
            parallel_config=self._parallel_config,
        ).flatten(2)
        video, text = found[:, :length], found[:, length:]
        for layer in attn.to_out:
            video = layer(video)
        return video, attn.to_add_out(text) if hasattr(attn, "to_add_out") else text


def mask_where_padded(transformer: Any) -> None:
    """Gives the transformer a `text_mask`, which its blocks heed."""
    transformer.text_mask = text_mask = TextMask()
    for block in transformer.transformer_blocks:
        block.attn1.processor = JointAttention(text_mask)


def _normed(tensor: Tensor, norm: Norm) -> Tensor:
    return tensor if norm is None else norm(tensor)


def _rotated(tensor: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Each pair of neighbouring channels of [B, N, heads, D] turned by an angle whose cosine and sine are [N, heads, D / 2]."""
    even, odd = tensor[..., 0::2].float(), tensor[..., 1::2].float()
    return torch.stack([(even * cosine - odd * sine).to(tensor.dtype), (even * sine + odd * cosine).to(tensor.dtype)], dim=-1).flatten(-2)
