"""Texts as HunyuanVideo-1.5 sees them: Qwen2.5-VL's hidden states of a prompt template, and ByT5's of the words in quotes.

Source: diffusers' HunyuanVideo15Pipeline (pipeline_hunyuan_video1_5.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from ..base import TextEncoder
from ..files import ModelFiles
from ..text_encoders import load_encoders
from ..text_mask import MASK, padded

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

TEXT_LENGTH, GLYPH_LENGTH = 1000, 256  # tokens of a text after the template's start, and of its words in quotes
CROP = 108  # tokens of the template before the text
LAYER = -3  # the hidden states that the transformer reads: those two layers below the last
SYSTEM = (" " * 9).join([
    "You are a helpful assistant. Describe the video by detailing the following aspects:",
    "1. The main content and theme of the video.",
    "2. The color, shape, size, texture, quantity, text, and spatial relationships of the objects.",
    "3. Actions, events, behaviors temporal relationships, physical movement changes of the objects.",
    "4. background environment, light, style and atmosphere.",
    "5. camera angles, movements, and transitions used in the video.",
])  # fmt: skip
QUOTED = re.compile(r'"(.*?)"|“(.*?)”')


def load_text_encoder(files: ModelFiles, dtype: torch.dtype) -> TextEncoder:
    """Tokenizers and encoders "qwen" and "byt5" on the CPU."""
    from transformers import Qwen2_5_VLTextModel, T5EncoderModel

    return load_encoders(files, {"qwen": "", "byt5": "_2"}, {"qwen": Qwen2_5_VLTextModel, "byt5": T5EncoderModel}, dtype)


def encode_text(encoder: TextEncoder, text: str) -> dict[str, Tensor]:
    """{"text": [L, 3584], "glyphs": [G, 1472]} float32 without padding; G is 0 for a text without words in quotes."""
    qwen, byt5 = (cast("Any", cast("nn.ModuleDict", encoder.module)[name]) for name in ("qwen", "byt5"))
    device = next(encoder.module.parameters()).device
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text or " "}]
    tokens = encoder.tokenizer["qwen"].apply_chat_template(messages, add_generation_prompt=True, return_dict=True, return_tensors="pt")
    ids, glyphs = tokens["input_ids"], encoder.tokenizer["byt5"](glyph_text(text), return_tensors="pt").input_ids
    if ids.shape[1] > CROP + TEXT_LENGTH or glyphs.shape[1] > GLYPH_LENGTH:
        encoder.truncated.append(text)
        end = glyphs[:, -1:]
        ids, glyphs = ids[:, : CROP + TEXT_LENGTH], glyphs[:, :GLYPH_LENGTH].clone()
        glyphs[:, -1:] = end
    hidden = qwen(ids.to(device), output_hidden_states=True).hidden_states[LAYER]
    seen = byt5(glyphs.to(device))[0] if glyph_text(text) else hidden.new_zeros(1, 0, byt5.config.d_model)
    return {"text": hidden[0, CROP:].float().cpu(), "glyphs": seen[0].float().cpu()}


def glyph_text(text: str) -> str:
    """The words in quotes as the pipeline tells ByT5 of them, each once; empty if there are none."""
    words = dict.fromkeys(plain or curly for plain, curly in QUOTED.findall(text))
    return ". ".join(f'Text "{word}"' for word in words) + ". " if words else ""


def text_inputs(texts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Encodings of B texts as the transformer's arguments, padded to the longest; masks [B, L], where there are any, leave that out."""
    made = {}
    for name, suffix in (("text", ""), ("glyphs", "_2")):
        made[f"encoder_hidden_states{suffix}"], mask = padded([text[name] for text in texts])
        if mask is not None:
            made[f"{MASK}{suffix}"] = mask
    return made
