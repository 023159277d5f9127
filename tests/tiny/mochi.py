"""A random Mochi of a few thousand weights as an ordinary diffusers folder."""

import json
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Image

from tests.tiny import Size
from tests.tiny.capture import Point, calls_of

TOKENS = 48
TRANSFORMER: dict[str, Any] = {
    "num_attention_heads": 3, "attention_head_dim": 16, "num_layers": 2, "pooled_projection_dim": 96, "text_embed_dim": 16,
    "max_sequence_length": TOKENS,
}  # fmt: skip
VAE: dict[str, Any] = {
    "encoder_block_out_channels": (32, 64, 96, 128), "decoder_block_out_channels": (32, 64, 96, 128), "layers_per_block": (1, 1, 1, 1, 1),
}  # fmt: skip


def write_tiny_mochi(folder: Path, seed: int = 0) -> Path:
    """Writes the folder and returns it."""
    from diffusers import FlowMatchEulerDiscreteScheduler
    from transformers import ByT5Tokenizer, T5Config, T5EncoderModel

    torch.manual_seed(seed)
    tiny_transformer().save_pretrained(folder / "transformer")
    tiny_vae().save_pretrained(folder / "vae")
    text = T5Config(vocab_size=384, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, feed_forward_proj="gated-gelu")
    T5EncoderModel(text).save_pretrained(folder / "text_encoder")
    ByT5Tokenizer(model_max_length=TOKENS).save_pretrained(folder / "tokenizer")
    FlowMatchEulerDiscreteScheduler(invert_sigmas=True).save_pretrained(folder / "scheduler")
    index = {"_class_name": "MochiPipeline", "force_zeros_for_empty_prompt": True}
    (folder / "model_index.json").write_text(json.dumps(index), encoding="utf-8")
    return folder


def tiny_transformer() -> Any:
    """A random transformer whose norms and learned frequencies are not at their plain start."""
    from diffusers import MochiTransformer3DModel

    transformer: Any = MochiTransformer3DModel(**TRANSFORMER)
    for name, parameter in transformer.named_parameters():
        if ".norm_" in name:
            parameter.data.add_(0.2 * torch.randn_like(parameter))
    transformer.pos_frequencies.data.normal_(0, 0.03)
    return transformer


def tiny_vae() -> Any:
    """A random VAE whose latents vary about as much as the real ones."""
    from diffusers import AutoencoderKLMochi

    vae: Any = AutoencoderKLMochi(**VAE)
    vae.encoder.proj_out.weight.data *= 2
    return vae


def tiny_pipeline(folder: Path) -> Any:
    """The folder's MochiPipeline."""
    from diffusers import AutoencoderKLMochi, FlowMatchEulerDiscreteScheduler, MochiPipeline, MochiTransformer3DModel
    from transformers import AutoTokenizer, T5EncoderModel

    pipeline = MochiPipeline(
        FlowMatchEulerDiscreteScheduler.from_pretrained(folder / "scheduler"), AutoencoderKLMochi.from_pretrained(folder / "vae"),
        T5EncoderModel.from_pretrained(folder / "text_encoder"), AutoTokenizer.from_pretrained(folder / "tokenizer"),
        MochiTransformer3DModel.from_pretrained(folder / "transformer"), force_zeros_for_empty_prompt=True,
    )  # fmt: skip
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def pipeline_points(folder: Path, prompt: str, size: Size, pictures: dict[str, Image]) -> list[Point]:
    """The pipeline's steps without guidance: its scheduler moves by the output times the fall of sigma."""
    frames, height, width = size
    pipeline = tiny_pipeline(folder)
    with calls_of(pipeline.transformer) as calls:
        pipeline(
            prompt=prompt, height=height, width=width, num_frames=frames, num_inference_steps=4, guidance_scale=1.0,
            max_sequence_length=TOKENS, output_type="latent",
        )  # fmt: skip
    clean = pipeline.scheduler.sigmas[:-1]
    return [Point(call.kwargs["hidden_states"], 1 - done.item(), -call.output) for call, done in zip(calls, clean, strict=True)]
