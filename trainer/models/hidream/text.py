"""HiDream's four text encoders, as diffusers' HiDreamImagePipeline uses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..base import TextEncoder

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ..files import ModelFiles

PARTS = {"clip_l": "", "clip_g": "_2", "t5": "_3", "llama": "_4"}  # what diffusers numbers the encoders and their tokenizers
MOST_TOKENS = 128


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers by encoder; a text becomes MOST_TOKENS tokens of each, fewer where the tokenizer allows fewer."""

    by_name: Mapping[str, Any]

    def __call__(self, text: str) -> dict[str, Any]:
        """Token numbers and attention mask of one text, each [1, L], by encoder."""
        return {
            name: tokenizer(text, padding="max_length", max_length=self.length(name), truncation=True, return_tensors="pt")
            for name, tokenizer in self.by_name.items()
        }

    def length(self, name: str) -> int:
        """Tokens of an encoder."""
        return min(MOST_TOKENS, self.by_name[name].model_max_length) if name in ("t5", "llama") else MOST_TOKENS

    def too_long(self, text: str) -> bool:
        """Whether an encoder does not see the whole text."""
        return any(len(tokenizer(text).input_ids) > self.length(name) for name, tokenizer in self.by_name.items())


def load(files: ModelFiles, dtype: torch.dtype) -> TextEncoder:
    """The tokenizers and the encoders, one module of four, on the CPU; Llama without its output layer."""
    from torch import nn
    from transformers import AutoTokenizer, CLIPTextModelWithProjection, LlamaModel, T5EncoderModel

    kinds: dict[str, Any] = {
        "clip_l": CLIPTextModelWithProjection, "clip_g": CLIPTextModelWithProjection, "t5": T5EncoderModel, "llama": LlamaModel,
    }  # fmt: skip
    tokenizers: dict[str, Any] = {
        name: AutoTokenizer.from_pretrained(files.folder(f"tokenizer{number}"), trust_remote_code=False) for name, number in PARTS.items()
    }
    tokenizers["llama"].pad_token = tokenizers["llama"].eos_token
    modules = {name: files.load(f"text_encoder{number}", kinds[name], dtype) for name, number in PARTS.items()}
    return TextEncoder(Tokenizers(tokenizers), nn.ModuleDict(modules).requires_grad_(False).eval())


def encode(encoder: TextEncoder, text: str) -> dict[str, Tensor]:
    """{"pooled": [D] of both CLIP, "t5": [L, D], "llama": [layers, L, D]}, in the encoders' own precision.

    The padding stays: the transformer is not told to leave it out. Llama's are all its hidden states but the first,
    which is 32 MiB a caption in half precision.
    """
    import torch

    modules: Any = encoder.module
    device = next(encoder.module.parameters()).device
    if encoder.tokenizer.too_long(text):  # type: ignore[attr-defined]
        encoder.truncated.append(text)
    tokens = {name: {part: tensor.to(device) for part, tensor in found.items()} for name, found in encoder.tokenizer(text).items()}
    with torch.no_grad():
        pooled = [modules[name](tokens[name]["input_ids"])[0][0] for name in ("clip_l", "clip_g")]
        t5 = modules["t5"](tokens["t5"]["input_ids"], attention_mask=tokens["t5"]["attention_mask"])[0][0]
        llama = modules["llama"](
            tokens["llama"]["input_ids"], attention_mask=tokens["llama"]["attention_mask"], output_hidden_states=True
        ).hidden_states[1:]
    made = {"pooled": torch.cat(pooled), "t5": t5, "llama": torch.cat(llama)}
    return {name: tensor.cpu() for name, tensor in made.items()}
