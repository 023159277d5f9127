"""A random Wan of a few thousand weights as an ordinary diffusers folder, for tests of everything around a model."""

from pathlib import Path

import torch


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
