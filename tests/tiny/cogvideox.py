"""Random CogVideoX models of a few thousand weights, one for each variant, as ordinary diffusers folders."""

import json
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Image

from tests.tiny import Size
from tests.tiny.capture import Point, calls_of

TOKENS = 32
SIDE = 4  # of the models' own size, in latents
TRANSFORMER = {
    "num_attention_heads": 3, "attention_head_dim": 16, "num_layers": 2, "time_embed_dim": 16, "text_embed_dim": 16, "in_channels": 16,
    "out_channels": 16, "sample_width": SIDE, "sample_height": SIDE, "sample_frames": 9, "max_text_seq_length": TOKENS,
}  # fmt: skip
ROTARY = {"use_rotary_positional_embeddings": True}
LEARNED = {"use_learned_positional_embeddings": True}
PAIRED = {"patch_size_t": 2, "patch_bias": False, "sample_width": 6}
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any], float]] = {  # transformer, VAE, SNR shift; as released
    "2b": ({}, {"scaling_factor": 1.15258426}, 3.0),
    "5b": (ROTARY, {"scaling_factor": 0.7}, 1.0),
    "5b_i2v": ({**ROTARY, **LEARNED, "in_channels": 32}, {"scaling_factor": 0.7}, 1.0),
    "15": ({**ROTARY, **PAIRED}, {"scaling_factor": 0.7}, 1.0),
    "15_i2v": (
        {**ROTARY, **PAIRED, "in_channels": 32, "ofs_embed_dim": 16}, {"scaling_factor": 0.7, "invert_scale_latents": True}, 1.0,
    ),
}  # fmt: skip


def write_2b(folder: Path) -> Path:
    """2b: positions are added."""
    return write_tiny_cogvideox(folder, "2b")


def write_5b(folder: Path) -> Path:
    """5b: rotary positions."""
    return write_tiny_cogvideox(folder, "5b")


def write_5b_i2v(folder: Path) -> Path:
    """5b I2V: rotary and learned positions, which hold for one size."""
    return write_tiny_cogvideox(folder, "5b_i2v")


def write_15(folder: Path) -> Path:
    """1.5 T2V: latent frames in pairs."""
    return write_tiny_cogvideox(folder, "15")


def write_15_i2v(folder: Path) -> Path:
    """1.5 I2V: besides an offset embedding, and pictures divided by the scaling factor."""
    return write_tiny_cogvideox(folder, "15_i2v")


def write_tiny_cogvideox(folder: Path, variant: str, seed: int = 0) -> Path:
    """Writes the folder of a variant and returns it."""
    from diffusers import CogVideoXDDIMScheduler
    from transformers import ByT5Tokenizer, T5Config, T5EncoderModel

    torch.manual_seed(seed)
    transformer, vae, snr_shift = VARIANTS[variant]
    tiny_transformer(**transformer).save_pretrained(folder / "transformer")
    _vae(**vae).save_pretrained(folder / "vae")
    text = T5Config(vocab_size=384, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, feed_forward_proj="gated-gelu")
    T5EncoderModel(text).save_pretrained(folder / "text_encoder")
    ByT5Tokenizer(model_max_length=TOKENS).save_pretrained(folder / "tokenizer")
    CogVideoXDDIMScheduler(
        clip_sample=False,
        prediction_type="v_prediction",
        rescale_betas_zero_snr=True,
        snr_shift_scale=snr_shift,
        timestep_spacing="trailing",
    ).save_pretrained(folder / "scheduler")
    pipeline = "CogVideoXImageToVideoPipeline" if variant.endswith("i2v") else "CogVideoXPipeline"
    (folder / "model_index.json").write_text(json.dumps({"_class_name": pipeline}), encoding="utf-8")
    return folder


def tiny_transformer(**changes: Any) -> Any:
    """A random transformer whose norms and learned positions are not at their plain start."""
    from diffusers import CogVideoXTransformer3DModel

    transformer: Any = CogVideoXTransformer3DModel(**{**TRANSFORMER, **changes})
    for name, parameter in transformer.named_parameters():
        if "norm" in name and not name.endswith("linear.weight"):
            parameter.data.add_(0.2 * torch.randn_like(parameter))
    if changes.get("use_learned_positional_embeddings"):
        transformer.patch_embed.pos_embedding[:, TOKENS:].normal_()
    return transformer


def _vae(**changes: Any) -> Any:
    """A random VAE; its posterior has next to no deviation, as the image-to-video pipeline draws from it."""
    from diffusers import AutoencoderKLCogVideoX

    sizes: dict[str, Any] = {"block_out_channels": (8, 8, 8, 8), "layers_per_block": 1, "norm_num_groups": 2}
    vae = AutoencoderKLCogVideoX(**sizes, **changes)
    last: Any = vae.encoder.conv_out.conv
    last.weight.data[:16] *= 4
    last.weight.data[16:], last.bias.data[16:] = 0, -30
    return vae


def tiny_pipeline(folder: Path) -> Any:
    """The pipeline that the folder names."""
    import diffusers
    from diffusers import AutoencoderKLCogVideoX, CogVideoXDDIMScheduler, CogVideoXTransformer3DModel
    from transformers import AutoTokenizer, T5EncoderModel

    kind = getattr(diffusers, json.loads((folder / "model_index.json").read_text(encoding="utf-8"))["_class_name"])
    pipeline = kind(
        AutoTokenizer.from_pretrained(folder / "tokenizer"), T5EncoderModel.from_pretrained(folder / "text_encoder"),
        AutoencoderKLCogVideoX.from_pretrained(folder / "vae"), CogVideoXTransformer3DModel.from_pretrained(folder / "transformer"),
        CogVideoXDDIMScheduler.from_pretrained(folder / "scheduler"),
    )  # fmt: skip
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def pipeline_points(folder: Path, prompt: str, size: Size, pictures: dict[str, Image]) -> list[Point]:
    """The pipeline's steps without guidance, in units of (1 - sigma)·x0 + sigma·noise.

    The estimate of x0 is the scheduler's own; that of the noise is what is left of the sample.
    """
    frames, height, width = size
    pipeline, points = tiny_pipeline(folder), []
    with calls_of(pipeline.transformer) as calls:
        pipeline(
            prompt=prompt, height=height, width=width, num_frames=frames, num_inference_steps=4, guidance_scale=1.0,
            max_sequence_length=TOKENS, output_type="latent", **({"image": pictures["first_frame"]} if pictures else {}),
        )  # fmt: skip
    for call in calls:
        sample, timestep = call.kwargs["hidden_states"][:, :, :16], call.kwargs["timestep"][0]
        _, x0 = pipeline.scheduler.step(call.output, timestep, sample, return_dict=False)
        a = pipeline.scheduler.alphas_cumprod[timestep].item() ** 0.5
        b = (1 - a**2) ** 0.5
        noise = (sample - a * x0) / b
        x, velocity = (sample / (a + b)).transpose(1, 2), (noise - x0).transpose(1, 2)
        points.append(Point(x, b / (a + b), velocity))
    return points
