"""The demo model as plain diffusers components: its sizes, how it is built, saved, loaded, and how it reads text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = Path(__file__).parent / "model"
TEXT_LENGTH = 64  # bytes, the end mark included
SHIFT = 3.0

VAE_CONFIG: dict[str, Any] = {
    "base_dim": 16,
    "z_dim": 16,
    "dim_mult": [1, 2, 4, 4],
    "num_res_blocks": 2,
    "attn_scales": [],
    "temperal_downsample": [False, True, True],
}
TRANSFORMER_CONFIG: dict[str, Any] = {
    "patch_size": (1, 2, 2),
    "num_attention_heads": 6,
    "attention_head_dim": 32,
    "in_channels": 16,
    "out_channels": 16,
    "text_dim": 96,
    "freq_dim": 256,
    "ffn_dim": 512,
    "num_layers": 6,
    "cross_attn_norm": True,
    "qk_norm": "rms_norm_across_heads",
    "rope_max_seq_len": 64,
}
TEXT_CONFIG: dict[str, Any] = {
    "vocab_size": 384,
    "d_model": 96,
    "d_kv": 24,
    "num_heads": 4,
    "d_ff": 192,
    "num_layers": 3,
    "num_decoder_layers": 0,
    "dropout_rate": 0.0,
    "feed_forward_proj": "gated-gelu",
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 64,
    "tie_word_embeddings": True,
    "use_cache": False,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}


@dataclass
class DemoModel:
    """The components of the demo model, named as in a diffusers folder."""

    transformer: Any
    vae: Any
    text_encoder: Any
    tokenizer: Any
    scheduler: Any


def build_vae() -> Any:
    """Make an untrained autoencoder with Wan 2.1's own latent statistics."""
    from diffusers import AutoencoderKLWan

    return AutoencoderKLWan(**VAE_CONFIG)


def build_transformer() -> Any:
    """Make an untrained transformer."""
    from diffusers import WanTransformer3DModel

    return WanTransformer3DModel(**TRANSFORMER_CONFIG)


def build_text_encoder() -> Any:
    """Make an untrained text encoder that reads bytes."""
    from transformers import UMT5Config, UMT5EncoderModel

    return UMT5EncoderModel(UMT5Config(**TEXT_CONFIG))


def build_tokenizer() -> Any:
    """Make the byte-level tokenizer; it needs no vocabulary file."""
    from transformers import ByT5Tokenizer

    return ByT5Tokenizer(model_max_length=TEXT_LENGTH)


def build_scheduler() -> Any:
    """Make the scheduler of a flow-matching model with the demo's shift."""
    from diffusers import FlowMatchEulerDiscreteScheduler

    return FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=SHIFT)


def save_model(model: DemoModel, folder: Path = FOLDER) -> None:
    """Write all components as an ordinary diffusers folder, weights in float16."""
    import torch
    from diffusers import WanPipeline

    for part in (model.transformer, model.vae, model.text_encoder):
        part.to(torch.float16)
    WanPipeline(**vars(model)).save_pretrained(str(folder), safe_serialization=True)
    _write_tokenizer(folder / "tokenizer")
    for part in (model.transformer, model.vae, model.text_encoder):
        part.to(torch.float32)


def _write_tokenizer(folder: Path) -> None:
    """Write the tokenizer's settings as transformers 4 and 5 both read them; each saves in a form that the other refuses."""
    import json

    for file in folder.iterdir():
        file.unlink()
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    settings = {"tokenizer_class": "ByT5Tokenizer", "model_max_length": TEXT_LENGTH, "extra_ids": 125, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def load_model(folder: Path = FOLDER, device: str = "cpu") -> DemoModel:
    """Load all components in float32, frozen."""
    import torch
    from diffusers import AutoencoderKLWan, FlowMatchEulerDiscreteScheduler, WanTransformer3DModel
    from transformers import ByT5Tokenizer, UMT5EncoderModel

    def part(kind: Any, name: str) -> Any:
        module = kind.from_pretrained(str(folder), subfolder=name, torch_dtype=torch.float32)
        return module.to(device, torch.float32).eval().requires_grad_(False)

    return DemoModel(
        transformer=part(WanTransformer3DModel, "transformer"),
        vae=part(AutoencoderKLWan, "vae"),
        text_encoder=part(UMT5EncoderModel, "text_encoder"),
        tokenizer=ByT5Tokenizer.from_pretrained(str(folder), subfolder="tokenizer"),
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(str(folder), subfolder="scheduler"),
    )


def latent_statistics(vae: Any) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the latents, [1, C, 1, 1, 1] each."""
    import torch

    shape = (1, -1, 1, 1, 1)
    device = next(vae.parameters()).device
    mean = torch.tensor(vae.config.latents_mean, device=device).view(shape)
    return mean, torch.tensor(vae.config.latents_std, device=device).view(shape)


def token_ids(texts: Sequence[str]) -> Tensor:
    """What the tokenizer makes of ASCII texts, [B, TEXT_LENGTH] int16: each byte plus 3, an end mark, zeros."""
    import numpy as np
    import torch

    ids = np.zeros((len(texts), TEXT_LENGTH), np.int16)
    for row, text in enumerate(texts):
        codes = [*[byte + 3 for byte in text.encode()][: TEXT_LENGTH - 1], 1]
        ids[row, : len(codes)] = codes
    return torch.from_numpy(ids)


def embed(text_encoder: Any, ids: Tensor) -> Tensor:
    """Text embeddings [B, TEXT_LENGTH, D] with zeros past each text's end, as diffusers' WanPipeline makes them."""
    mask = (ids != 0).long()
    states = text_encoder(input_ids=ids.long(), attention_mask=mask).last_hidden_state
    return states * mask[..., None].to(states.dtype)


def encode_text(model: DemoModel, texts: Sequence[str]) -> Tensor:
    """Embed texts through the shipped tokenizer, [B, TEXT_LENGTH, D]."""
    ids = model.tokenizer(list(texts), padding="max_length", max_length=TEXT_LENGTH, truncation=True, return_tensors="pt").input_ids
    return embed(model.text_encoder, ids.to(next(model.text_encoder.parameters()).device))
