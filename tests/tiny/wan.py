"""Random Wans of a few thousand weights as ordinary diffusers folders, for their own tests and those of everything around a model."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Image

from tests.tiny import Size
from tests.tiny.capture import Point, calls_of

SEES = {"image_dim": 16, "added_kv_proj_dim": 32}  # of the transformer beside an image encoder
CHANNELS = 16
VAE: dict[str, Any] = {"base_dim": 4, "z_dim": CHANNELS, "dim_mult": [1, 2, 4, 4], "num_res_blocks": 1, "attn_scales": []}
VAE_OF_5B: dict[str, Any] = {
    **VAE, "z_dim": 48, "decoder_base_dim": 4, "is_residual": True, "patch_size": 2, "in_channels": 12, "out_channels": 12,
    "scale_factor_spatial": 16, "latents_mean": [1.0, -1.0] * 24, "latents_std": [0.9] * 48,
}  # fmt: skip


def write_tiny_wan(
    folder: Path, seed: int = 0, layers: int = 2, *, vae: dict[str, Any] = VAE, sees: bool = False, experts: int = 1,
    index: dict[str, Any] | None = None, text_dim: int = 16, **transformer: Any,
) -> Path:  # fmt: skip
    """Writes the folder of a text-to-video model, or of another by more settings, and returns it."""
    from diffusers import AutoencoderKLWan, FlowMatchEulerDiscreteScheduler, WanTransformer3DModel
    from transformers import ByT5Tokenizer, UMT5Config, UMT5EncoderModel

    torch.manual_seed(seed)
    shape = {"num_attention_heads": 2, "in_channels": vae["z_dim"], "out_channels": vae["z_dim"], **(SEES if sees else {}), **transformer}
    for number in range(1, experts + 1):
        model: Any = WanTransformer3DModel(attention_head_dim=16, num_layers=layers, ffn_dim=64, text_dim=text_dim, **shape)
        if shape.get("pos_embed_seq_len"):
            model.condition_embedder.image_embedder.pos_embed.data.normal_()
        model.save_pretrained(folder / ("transformer" if number == 1 else f"transformer_{number}"))
    AutoencoderKLWan(**vae).save_pretrained(folder / "vae")
    text = UMT5Config(vocab_size=384, d_model=text_dim, d_kv=8, d_ff=32, num_layers=1, num_heads=2, feed_forward_proj="gated-gelu")
    UMT5EncoderModel(text).save_pretrained(folder / "text_encoder")
    ByT5Tokenizer(model_max_length=48).save_pretrained(folder / "tokenizer")
    FlowMatchEulerDiscreteScheduler(shift=3.0).save_pretrained(folder / "scheduler")
    if sees:
        _write_image_encoder(folder)
    (folder / "model_index.json").write_text(json.dumps({"_class_name": "WanPipeline", **(index or {})}), encoding="utf-8")
    return folder


def _write_image_encoder(folder: Path) -> None:
    """Four patches and a class token for each picture."""
    from transformers import CLIPImageProcessor, CLIPVisionConfig, CLIPVisionModel

    config = CLIPVisionConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14
    )  # fmt: skip
    CLIPVisionModel(config).save_pretrained(folder / "image_encoder")
    size = {"height": 28, "width": 28}
    CLIPImageProcessor(size={"shortest_edge": 28}, crop_size=size).save_pretrained(folder / "image_processor")


def write_tiny_i2v(folder: Path) -> Path:
    """2.1 image-to-video: a mask of 4 channels and 16 channels of frames beside the noise, and an image encoder."""
    return write_tiny_wan(folder, sees=True, in_channels=2 * CHANNELS + 4)


def write_tiny_flf2v(folder: Path) -> Path:
    """2.1 first and last frame: as image-to-video, with places for the tokens of two pictures."""
    return write_tiny_wan(folder, sees=True, in_channels=2 * CHANNELS + 4, pos_embed_seq_len=10)


def write_tiny_a14b_t2v(folder: Path) -> Path:
    """2.2 text-to-video of two experts."""
    return write_tiny_wan(folder, experts=2, index={"boundary_ratio": 0.875})


def write_tiny_a14b_i2v(folder: Path) -> Path:
    """2.2 image-to-video of two experts, without an image encoder."""
    return write_tiny_wan(folder, experts=2, in_channels=2 * CHANNELS + 4, index={"boundary_ratio": 0.9})


def write_tiny_ti2v(folder: Path) -> Path:
    """2.2 text-and-image-to-video: the VAE of 48 channels, a time for each token, and room for 192 numbers in each."""
    return write_tiny_wan(folder, vae=VAE_OF_5B, index={"expand_timesteps": True}, num_attention_heads=6)


def pipeline_points(folder: Path, prompt: str, size: Size, pictures: dict[str, Image]) -> list[Point]:
    """The pipeline without guidance: its transformers' output is the velocity."""
    frames, height, width = size
    pipeline, given = opened(folder, prompt, pictures)
    with ExitStack() as stack:
        models = [model for model in (pipeline.transformer, pipeline.transformer_2) if model is not None]
        lists = [stack.enter_context(calls_of(model)) for model in models]
        pipeline(height=height, width=width, num_frames=frames, num_inference_steps=4, guidance_scale=1.0, output_type="latent", **given)
    channels = pipeline.vae.config.z_dim
    return [
        Point(call.kwargs["hidden_states"][:, :channels], call.kwargs["timestep"].max().item() / 1000, call.output)
        for calls in lists
        for call in calls
    ]


def opened(folder: Path, prompt: str, pictures: dict[str, Image], negative: str | None = None) -> tuple[Any, dict[str, Any]]:
    """WanPipeline, with pictures WanImageToVideoPipeline, and what it is called with of prompts and pictures."""
    from diffusers import WanImageToVideoPipeline, WanPipeline

    parts = _parts(folder)
    images = {name: parts.pop(name) for name in ("image_encoder", "image_processor") if name in parts}
    pipeline: Any = WanPipeline(**parts)
    texts = pipeline.encode_prompt(prompt, negative, negative is not None, max_sequence_length=512 if images else 48)
    given: dict[str, Any] = dict(zip(("prompt_embeds", "negative_prompt_embeds"), texts, strict=True))  # the other's own needs ftfy
    if pictures:
        pipeline = WanImageToVideoPipeline(**parts, **images)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline, given | {{"first_frame": "image", "last_frame": "last_image"}[name]: picture for name, picture in pictures.items()}


def _parts(folder: Path) -> dict[str, Any]:
    from diffusers import AutoencoderKLWan, FlowMatchEulerDiscreteScheduler, WanTransformer3DModel
    from transformers import AutoTokenizer, CLIPImageProcessor, CLIPVisionModel, UMT5EncoderModel

    kinds = {
        "tokenizer": AutoTokenizer, "text_encoder": UMT5EncoderModel, "vae": AutoencoderKLWan, "transformer": WanTransformer3DModel,
        "transformer_2": WanTransformer3DModel, "scheduler": FlowMatchEulerDiscreteScheduler, "image_encoder": CLIPVisionModel,
        "image_processor": CLIPImageProcessor,
    }  # fmt: skip
    index = json.loads((folder / "model_index.json").read_text(encoding="utf-8"))
    settings = {name: index[name] for name in ("boundary_ratio", "expand_timesteps") if name in index}
    return {name: kind.from_pretrained(folder / name) for name, kind in kinds.items() if (folder / name).is_dir()} | settings
