"""Texts as HunyuanVideo sees them: Llama's hidden states of a prompt template, and CLIP's pooled embedding.

Source: diffusers' HunyuanVideoPipeline (pipeline_hunyuan_video.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from ..base import TextEncoder
from ..files import ModelFiles
from ..text_encoders import load_encoders
from ..text_mask import MASK, padded

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

PARTS = {"llama": "", "clip": "_2"}  # what diffusers numbers the encoders and their tokenizers
TEXT_LENGTH = 256  # tokens after the template's start, the pipeline's max_sequence_length
CLIP_LENGTH = 77
LAYER = -3  # the hidden states that the transformer reads: those two layers below the last
CROP = 95  # tokens of the template before the text
TEMPLATE = (
    "<|start_header_id|>system<|end_header_id|>\n\nDescribe the video by detailing the following aspects: "
    "1. The main content and theme of the video."
    "2. The color, shape, size, texture, quantity, text, and spatial relationships of the objects."
    "3. Actions, events, behaviors temporal relationships, physical movement changes of the objects."
    "4. background environment, light, style and atmosphere."
    "5. camera angles, movements, and transitions used in the video:<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>"
)


def load_text_encoder(files: ModelFiles, dtype: torch.dtype) -> TextEncoder:
    """Tokenizers and encoders "llama" and "clip" on the CPU."""
    from transformers import CLIPTextModel, LlamaModel

    return load_encoders(files, PARTS, {"llama": LlamaModel, "clip": CLIPTextModel}, dtype)


def encode_text(encoder: TextEncoder, text: str, length: int = TEXT_LENGTH) -> dict[str, Tensor]:
    """{"text": [L, 4096], "pooled": [768]} float32, L <= length: the template's start is cut off, and there is no padding."""
    tokens = tokens_of(encoder, text, TEMPLATE.format(text), CROP + length)
    device = next(encoder.module.parameters()).device
    hidden = module_of(encoder, "llama")(tokens.to(device), output_hidden_states=True).hidden_states[LAYER]
    return {"text": hidden[0, CROP:].float().cpu(), "pooled": pooled(encoder, text)}


def module_of(encoder: TextEncoder, name: str) -> Any:
    """One of the encoders by name."""
    return cast("nn.ModuleDict", encoder.module)[name]


def tokens_of(encoder: TextEncoder, text: str, prompt: str, length: int) -> Tensor:
    """Llama's tokens of a prompt, cut to a length, [1, L]; notes a text that is cut."""
    tokens = encoder.tokenizer["llama"](prompt, return_tensors="pt").input_ids
    if tokens.shape[1] > length:
        encoder.truncated.append(text)
    return tokens[:, :length]


def pooled(encoder: TextEncoder, text: str) -> Tensor:
    """CLIP's pooled embedding of a text, [768] float32."""
    tokens = encoder.tokenizer["clip"](text, truncation=True, max_length=CLIP_LENGTH, return_tensors="pt").input_ids
    return module_of(encoder, "clip")(tokens.to(next(encoder.module.parameters()).device)).pooler_output[0].float().cpu()


def text_inputs(texts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Encodings of B texts as the transformer's arguments, padded to the longest; there is a mask only where one is shorter.

    The pipeline pads to TEXT_LENGTH and masks that, with the same result.
    """
    import torch

    hidden, mask = padded([text["text"] for text in texts])
    masks = {} if mask is None else {MASK: mask}
    return {"encoder_hidden_states": hidden, **masks, "pooled_projections": torch.stack([text["pooled"] for text in texts])}
