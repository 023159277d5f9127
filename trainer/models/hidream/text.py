"""HiDream's four text encoders, as diffusers' HiDreamImagePipeline uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base import TextEncoder
from ..text_encoders import load_encoders

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from ..files import ModelFiles

PARTS = {"clip_l": "", "clip_g": "_2", "t5": "_3", "llama": "_4"}  # what diffusers numbers the encoders and their tokenizers
MOST_TOKENS = 128


def load(files: ModelFiles, dtype: torch.dtype) -> TextEncoder:
    """The tokenizers and encoders by name on the CPU; Llama without its output layer."""
    from transformers import CLIPTextModelWithProjection, LlamaModel, T5EncoderModel

    kinds: dict[str, type[nn.Module]] = {
        "clip_l": CLIPTextModelWithProjection, "clip_g": CLIPTextModelWithProjection, "t5": T5EncoderModel, "llama": LlamaModel,
    }  # fmt: skip
    made = load_encoders(files, PARTS, kinds, dtype)
    made.tokenizer["llama"].pad_token = made.tokenizer["llama"].eos_token
    return made


def encode(encoder: TextEncoder, text: str) -> dict[str, Tensor]:
    """{"pooled": [D] of both CLIP, "t5": [L, D], "llama": [layers, L, D]}, in the encoders' own precision.

    The padding stays: the transformer is not told to leave it out. Llama's are all its hidden states but the first,
    which is 32 MiB a caption in half precision.
    """
    import torch

    modules: Any = encoder.module
    device = next(encoder.module.parameters()).device
    lengths = {name: _length(name, tokenizer) for name, tokenizer in encoder.tokenizer.items()}
    if any(len(tokenizer(text).input_ids) > lengths[name] for name, tokenizer in encoder.tokenizer.items()):
        encoder.truncated.append(text)
    tokens = {
        name: tokenizer(text, padding="max_length", max_length=lengths[name], truncation=True, return_tensors="pt").to(device)
        for name, tokenizer in encoder.tokenizer.items()
    }
    with torch.no_grad():
        pooled = [modules[name](tokens[name]["input_ids"])[0][0] for name in ("clip_l", "clip_g")]
        t5 = modules["t5"](tokens["t5"]["input_ids"], attention_mask=tokens["t5"]["attention_mask"])[0][0]
        llama = modules["llama"](
            tokens["llama"]["input_ids"], attention_mask=tokens["llama"]["attention_mask"], output_hidden_states=True
        ).hidden_states[1:]
    made = {"pooled": torch.cat(pooled), "t5": t5, "llama": torch.cat(llama)}
    return {name: tensor.cpu() for name, tensor in made.items()}


def _length(name: str, tokenizer: Any) -> int:
    """The tokens that the pipeline gives an encoder."""
    return min(MOST_TOKENS, tokenizer.model_max_length) if name in ("t5", "llama") else MOST_TOKENS
