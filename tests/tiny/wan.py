"""A random Wan of a few thousand weights as an ordinary diffusers folder, for tests of everything around a model."""

from pathlib import Path

import torch
from PIL.Image import Image

from tests.tiny import Size
from tests.tiny.capture import Point, calls_of


def write_tiny_wan(folder: Path, seed: int = 0, layers: int = 2) -> Path:
    """Writes the folder and returns it."""
    from diffusers import AutoencoderKLWan, FlowMatchEulerDiscreteScheduler, WanTransformer3DModel
    from transformers import ByT5Tokenizer, UMT5Config, UMT5EncoderModel

    torch.manual_seed(seed)
    WanTransformer3DModel(
        num_attention_heads=2, attention_head_dim=16, num_layers=layers, ffn_dim=64, text_dim=16, in_channels=16, out_channels=16
    ).save_pretrained(folder / "transformer")
    AutoencoderKLWan(base_dim=4, z_dim=16, dim_mult=[1, 2, 4, 4], num_res_blocks=1, attn_scales=[]).save_pretrained(folder / "vae")
    text = UMT5Config(vocab_size=384, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, feed_forward_proj="gated-gelu")
    UMT5EncoderModel(text).save_pretrained(folder / "text_encoder")
    ByT5Tokenizer(model_max_length=48).save_pretrained(folder / "tokenizer")
    FlowMatchEulerDiscreteScheduler(shift=3.0).save_pretrained(folder / "scheduler")
    (folder / "model_index.json").write_text('{"_class_name": "WanPipeline"}', encoding="utf-8")
    return folder


def pipeline_points(folder: Path, prompt: str, size: Size, pictures: dict[str, Image]) -> list[Point]:
    """WanPipeline without guidance: its transformer's output is the velocity."""
    from diffusers import AutoencoderKLWan, FlowMatchEulerDiscreteScheduler, WanPipeline, WanTransformer3DModel
    from transformers import AutoTokenizer, UMT5EncoderModel

    frames, height, width = size
    pipeline = WanPipeline(
        AutoTokenizer.from_pretrained(folder / "tokenizer"), UMT5EncoderModel.from_pretrained(folder / "text_encoder"),
        AutoencoderKLWan.from_pretrained(folder / "vae"), FlowMatchEulerDiscreteScheduler.from_pretrained(folder / "scheduler"),
        WanTransformer3DModel.from_pretrained(folder / "transformer"),
    )  # fmt: skip
    pipeline.set_progress_bar_config(disable=True)
    with calls_of(pipeline.transformer) as calls:
        pipeline(
            prompt=prompt, height=height, width=width, num_frames=frames, num_inference_steps=3, guidance_scale=1.0,
            max_sequence_length=48, output_type="latent",
        )  # fmt: skip
    return [Point(call.kwargs["hidden_states"], call.kwargs["timestep"][0].item() / 1000, call.output) for call in calls]
