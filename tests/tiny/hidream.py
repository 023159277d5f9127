"""A random HiDream-I1 of some hundred thousand weights, most of them in its experts, as an ordinary diffusers folder."""

import json
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Image

from tests.tiny import Size
from tests.tiny.capture import Point, calls_of

TOKENS = 24  # of T5 and Llama
TRANSFORMER: dict[str, Any] = {
    "patch_size": 2, "in_channels": 16, "num_layers": 2, "num_single_layers": 1, "attention_head_dim": 16, "num_attention_heads": 4,
    "caption_channels": [16, 16], "text_emb_dim": 32, "num_routed_experts": 4, "axes_dims_rope": [8, 4, 4], "max_resolution": [8, 8],
    "llama_layers": [0, 1, 1],
}  # fmt: skip


def write_with_two_experts(folder: Path) -> Path:
    """A model that uses all its experts everywhere: where the choice of them changes, a loss has no derivative."""
    return write_tiny_hidream(folder, experts=2)


def write_tiny_hidream(folder: Path, experts: int = 4, seed: int = 0) -> Path:
    """Writes the folder and returns it; two experts are used at a time."""
    from diffusers import FlowMatchEulerDiscreteScheduler
    from transformers import ByT5Tokenizer, CLIPTextConfig, LlamaConfig, LlamaForCausalLM, T5Config, T5EncoderModel
    from transformers import CLIPTextModelWithProjection as Clip

    torch.manual_seed(seed)
    tiny_transformer(experts).save_pretrained(folder / "transformer")
    tiny_vae().save_pretrained(folder / "vae")
    narrow: dict[str, Any] = {"vocab_size": 384, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    clip = CLIPTextConfig(**narrow, num_hidden_layers=1, projection_dim=16, max_position_embeddings=128, bos_token_id=0, eos_token_id=1)
    for part in ("text_encoder", "text_encoder_2"):
        Clip(clip).save_pretrained(folder / part)
    t5 = T5Config(vocab_size=384, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, feed_forward_proj="gated-gelu")
    T5EncoderModel(t5).save_pretrained(folder / "text_encoder_3")
    LlamaForCausalLM(LlamaConfig(**narrow, num_hidden_layers=2)).save_pretrained(folder / "text_encoder_4")
    for number, length in (("", 128), ("_2", 128), ("_3", TOKENS), ("_4", TOKENS)):
        ByT5Tokenizer(model_max_length=length).save_pretrained(folder / f"tokenizer{number}")
    FlowMatchEulerDiscreteScheduler(shift=3.0).save_pretrained(folder / "scheduler")
    (folder / "model_index.json").write_text(json.dumps({"_class_name": "HiDreamImagePipeline"}), encoding="utf-8")
    return folder


def tiny_transformer(experts: int = 4) -> Any:
    """A random transformer whose norms are not at their plain start."""
    from diffusers import HiDreamImageTransformer2DModel

    transformer: Any = HiDreamImageTransformer2DModel(**{**TRANSFORMER, "num_routed_experts": experts})
    for name, parameter in transformer.named_parameters():
        if "rms_norm" in name:
            parameter.data.add_(0.2 * torch.randn_like(parameter))
    return transformer


def tiny_vae(width: int = 8, groups: int = 2) -> Any:
    """A random VAE of four levels."""
    from diffusers import AutoencoderKL

    kind: Any = AutoencoderKL
    return kind(
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4, block_out_channels=(width,) * 4,
        norm_num_groups=groups, latent_channels=16, scaling_factor=0.3611, shift_factor=0.1159, use_quant_conv=False,
        use_post_quant_conv=False,
    )  # fmt: skip


def tiny_pipeline(folder: Path, area: int) -> Any:
    """The folder's HiDreamImagePipeline, which brings all pictures to one area in px."""
    from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, HiDreamImagePipeline, HiDreamImageTransformer2DModel
    from transformers import AutoTokenizer, CLIPTextModelWithProjection, LlamaForCausalLM, T5EncoderModel

    clip = [CLIPTextModelWithProjection.from_pretrained(folder / part) for part in ("text_encoder", "text_encoder_2")]
    tokenizers = [AutoTokenizer.from_pretrained(folder / f"tokenizer{number}") for number in ("", "_2", "_3", "_4")]
    pipeline = HiDreamImagePipeline(
        FlowMatchEulerDiscreteScheduler.from_pretrained(folder / "scheduler"), AutoencoderKL.from_pretrained(folder / "vae"),
        clip[0], tokenizers[0], clip[1], tokenizers[1], T5EncoderModel.from_pretrained(folder / "text_encoder_3"), tokenizers[2],
        LlamaForCausalLM.from_pretrained(folder / "text_encoder_4", attn_implementation="eager"), tokenizers[3],
        HiDreamImageTransformer2DModel.from_pretrained(folder / "transformer"),
    )  # fmt: skip
    pipeline.set_progress_bar_config(disable=True)
    pipeline.default_sample_size = area**0.5 * (1 + 1e-9) / 8  # no side may fall a hair short of its multiple
    return pipeline


def pipeline_points(folder: Path, prompt: str, size: Size, pictures: dict[str, Image]) -> list[Point]:
    """The pipeline's steps without guidance: it negates the output, and its scheduler follows that."""
    _, height, width = size
    pipeline = tiny_pipeline(folder, height * width)
    with calls_of(pipeline.transformer) as calls:
        pipeline(prompt=prompt, height=height, width=width, num_inference_steps=3, guidance_scale=1.0, output_type="latent")
    latents = [call.kwargs["hidden_states"].unsqueeze(2) for call in calls]
    sigmas = [call.kwargs["timesteps"][0].item() / 1000 for call in calls]
    return [Point(x, sigma, -call.output.unsqueeze(2)) for x, sigma, call in zip(latents, sigmas, calls, strict=True)]
