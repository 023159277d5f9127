"""Small models as diffusers folders whose single files core's loaders take: names, depths and widths by which core knows a model are kept.

Each function takes a folder. The text encoders have an embedding for each token of the tokenizers that come with ComfyUI.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tiny.cogvideox import tiny_transformer as tiny_cogvideox
from tests.tiny.cogvideox import write_5b
from tests.tiny.framepack import write_framepack
from tests.tiny.hidream import write_tiny_hidream
from tests.tiny.hunyuan_video import write_t2v
from tests.tiny.hunyuan_video_15 import tiny_transformer as tiny_hunyuan_15
from tests.tiny.hunyuan_video_15 import write_t2v as write_t2v_15
from tests.tiny.ltx_video import write_tiny_ltx_095
from tests.tiny.mochi import write_tiny_mochi
from tests.tiny.wan import CHANNELS, VAE, VAE_OF_5B, write_tiny_wan

T5: dict[str, Any] = {  # the layers and the feed-forward's width by which core knows the large T5
    "d_model": 16, "d_kv": 8, "d_ff": 10240, "num_layers": 24, "num_heads": 2, "feed_forward_proj": "gated-gelu",
}  # fmt: skip
NARROW: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32}
HEAD: dict[str, Any] = {"num_attention_heads": 1, "num_key_value_heads": 1}  # of language models, 128 numbers wide as core has it
CLIP_WORDS, LLAMA_WORDS, QWEN_WORDS, T5_WORDS = 49408, 128320, 152064, 32128
STAGES: dict[str, Any] = {"block_out_channels": (32, 64, 128, 128)}  # of VAEs whose norms have 32 groups
BLOCKS = {"num_res_blocks": 2}  # of Wan's VAEs: core takes no other


def wan_i2v(folder: Path) -> None:
    """With an image encoder deep enough to be known as the large CLIP."""
    from transformers import CLIPVisionConfig, CLIPVisionModel

    write_tiny_wan(folder, sees=True, in_channels=2 * CHANNELS + 4, vae={**VAE, **BLOCKS})
    _umt5(folder)
    sizes: dict[str, Any] = {**NARROW, "num_hidden_layers": 32, "num_attention_heads": 2, "image_size": 224, "patch_size": 112}
    CLIPVisionModel(CLIPVisionConfig(**sizes)).save_pretrained(folder / "image_encoder")


def wan_two_experts(folder: Path) -> None:
    """From text."""
    write_tiny_wan(folder, experts=2, index={"boundary_ratio": 0.875}, vae={**VAE, **BLOCKS})
    _umt5(folder)


def wan_5b(folder: Path) -> None:
    """From text, with a first frame or without."""
    write_tiny_wan(folder, vae={**VAE_OF_5B, **BLOCKS}, index={"expand_timesteps": True}, num_attention_heads=6)
    _umt5(folder)


def ltx_video(folder: Path) -> None:
    """Of the release 0.9.5."""
    write_tiny_ltx_095(folder)
    _t5(folder)


def hunyuan_video(folder: Path) -> None:
    """One head of the released size in each layer, since core counts heads by it."""
    from diffusers import AutoencoderKLHunyuanVideo, HunyuanVideoTransformer3DModel

    write_t2v(folder)
    sizes: dict[str, Any] = {"num_layers": 1, "num_single_layers": 1, "text_embed_dim": 16, "pooled_projection_dim": 16}
    HunyuanVideoTransformer3DModel(num_attention_heads=1, **sizes).save_pretrained(folder / "transformer")
    AutoencoderKLHunyuanVideo(**STAGES).save_pretrained(folder / "vae")
    _hunyuan_texts(folder)


def framepack(folder: Path) -> None:
    """Core has no such model; the texts are those of HunyuanVideo."""
    from diffusers import HunyuanVideoFramepackTransformer3DModel

    write_framepack(folder)
    sizes: dict[str, Any] = {"num_layers": 1, "num_single_layers": 1, "text_embed_dim": 16, "pooled_projection_dim": 16}
    seen: dict[str, Any] = {"has_image_proj": True, "image_proj_dim": 8, "has_clean_x_embedder": True}
    HunyuanVideoFramepackTransformer3DModel(num_attention_heads=1, **sizes, **seen).save_pretrained(folder / "transformer")
    _hunyuan_texts(folder)


def hunyuan_video_15(folder: Path) -> None:
    """One head of the released size, and the widths of pictures and of letters in them, which core fixes."""
    from transformers import Qwen2_5_VLTextConfig, Qwen2_5_VLTextModel, T5Config, T5EncoderModel

    write_t2v_15(folder)
    sizes = {"num_attention_heads": 1, "attention_head_dim": 128, "rope_axes_dim": (16, 56, 56)}
    widths = {"text_embed_dim": 128, "text_embed_2_dim": 1472, "image_embed_dim": 1152}
    tiny_hunyuan_15(task_type="t2v", **sizes, **widths).save_pretrained(folder / "transformer")
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
    qwen: dict[str, Any] = {"vocab_size": QWEN_WORDS, "hidden_size": 128, "intermediate_size": 32, "num_hidden_layers": 4, **HEAD}
    Qwen2_5_VLTextModel(Qwen2_5_VLTextConfig(**qwen, rope_parameters=rope)).save_pretrained(folder / "text_encoder")
    glyphs: dict[str, Any] = {**T5, "d_model": 1472, "d_ff": 16, "num_layers": 1}
    T5EncoderModel(T5Config(vocab_size=1510, **glyphs)).save_pretrained(folder / "text_encoder_2")


def cogvideox(folder: Path) -> None:
    """One head of the released size."""
    from diffusers import AutoencoderKLCogVideoX

    write_5b(folder)
    sizes = {"num_attention_heads": 1, "attention_head_dim": 64, "max_text_seq_length": 226}
    tiny_cogvideox(**sizes, use_rotary_positional_embeddings=True).save_pretrained(folder / "transformer")
    stages: dict[str, Any] = {"block_out_channels": (32, 32, 32, 32), "layers_per_block": 1}
    AutoencoderKLCogVideoX(**stages, scaling_factor=0.7).save_pretrained(folder / "vae")
    _t5(folder)


def mochi(folder: Path) -> None:
    """As small as it is elsewhere."""
    write_tiny_mochi(folder)
    _t5(folder)


def hidream(folder: Path) -> None:
    """One head of the released size, and depths by which core tells the text encoders apart."""
    from diffusers import AutoencoderKL, HiDreamImageTransformer2DModel
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection, LlamaConfig, LlamaForCausalLM

    write_tiny_hidream(folder)
    sizes: dict[str, Any] = {"patch_size": 2, "in_channels": 16, "num_layers": 1, "num_single_layers": 1, "num_attention_heads": 1}
    texts: dict[str, Any] = {"caption_channels": [16, 16], "text_emb_dim": 32, "llama_layers": [0, 1]}
    rope: dict[str, Any] = {"attention_head_dim": 128, "axes_dims_rope": (64, 32, 32)}
    HiDreamImageTransformer2DModel(**sizes, **texts, **rope).save_pretrained(folder / "transformer")
    for part, layers in (("text_encoder", 2), ("text_encoder_2", 32)):
        depth: dict[str, Any] = {"num_hidden_layers": layers, "num_attention_heads": 2, "max_position_embeddings": 248}
        clip = CLIPTextConfig(**NARROW, **depth, vocab_size=CLIP_WORDS, projection_dim=16)
        CLIPTextModelWithProjection(clip).save_pretrained(folder / part)
    _t5(folder, "text_encoder_3")
    llama = LlamaConfig(**NARROW, **HEAD, vocab_size=LLAMA_WORDS, num_hidden_layers=2, head_dim=128)
    LlamaForCausalLM(llama).save_pretrained(folder / "text_encoder_4")
    kinds: dict[str, Any] = {"down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4}
    scale: dict[str, Any] = {"scaling_factor": 0.3611, "shift_factor": 0.1159, "use_quant_conv": False, "use_post_quant_conv": False}
    AutoencoderKL(**kinds, **STAGES, **scale, layers_per_block=2, latent_channels=16).save_pretrained(folder / "vae")


def _umt5(folder: Path) -> None:
    """Its own tokenizer comes with it."""
    from transformers import UMT5Config, UMT5EncoderModel

    UMT5EncoderModel(UMT5Config(vocab_size=384, **T5)).save_pretrained(folder / "text_encoder")


def _t5(folder: Path, part: str = "text_encoder") -> None:
    from transformers import T5Config, T5EncoderModel

    T5EncoderModel(T5Config(vocab_size=T5_WORDS, **T5)).save_pretrained(folder / part)


def _hunyuan_texts(folder: Path) -> None:
    from transformers import CLIPTextConfig, CLIPTextModel, LlamaConfig, LlamaModel

    llama = LlamaConfig(**NARROW, **HEAD, vocab_size=LLAMA_WORDS, num_hidden_layers=4, head_dim=128)
    LlamaModel(llama).save_pretrained(folder / "text_encoder")
    clip = CLIPTextConfig(**NARROW, vocab_size=CLIP_WORDS, num_hidden_layers=2, num_attention_heads=2)
    CLIPTextModel(clip).save_pretrained(folder / "text_encoder_2")
