"""A random LTX-Video of a few thousand weights as an ordinary diffusers folder, of the first release or of 0.9.5."""

from pathlib import Path

import torch
from PIL.Image import Image
from torch import Tensor

from tests.tiny import Size
from tests.tiny.capture import Call, Point, calls_of

SCHEDULER = {
    "use_dynamic_shifting": True, "base_shift": 0.95, "max_shift": 2.05, "base_image_seq_len": 1024, "max_image_seq_len": 4096,
    "shift_terminal": 0.1,
}  # fmt: skip
VAES = {  # the releases' configurations with fewer layers and channels
    "0.9": {
        "block_out_channels": (8, 16, 32, 32), "layers_per_block": (1, 2, 1, 1, 1), "decoder_block_out_channels": (8, 16, 32, 32),
        "decoder_layers_per_block": (1, 1, 2, 1, 1),
    },
    "0.9.1": {
        "block_out_channels": (8, 16, 32, 32), "layers_per_block": (1, 1, 1, 1, 1), "decoder_block_out_channels": (8, 16, 32),
        "decoder_layers_per_block": (1, 2, 1, 1), "decoder_spatio_temporal_scaling": (True, True, True),
        "decoder_inject_noise": (True, True, False, False), "upsample_residual": (True, True, True), "upsample_factor": (2, 2, 2),
        "timestep_conditioning": True,
    },
    "0.9.5": {
        "block_out_channels": (4, 8, 16, 32, 64), "down_block_types": ("LTXVideo095DownBlock3D",) * 4, "layers_per_block": (1, 1, 2, 1, 1),
        "decoder_block_out_channels": (8, 16, 32), "decoder_layers_per_block": (1, 1, 1, 1), "spatio_temporal_scaling": (True,) * 4,
        "decoder_spatio_temporal_scaling": (True, True, True), "decoder_inject_noise": (False,) * 4, "timestep_conditioning": True,
        "downsample_type": ("spatial", "temporal", "spatiotemporal", "spatiotemporal"), "upsample_residual": (True, True, True),
        "upsample_factor": (2, 2, 2), "spatial_compression_ratio": 32, "temporal_compression_ratio": 8,
    },
}  # fmt: skip


def tiny_vae(release: str):
    """A VAE that is nowhere zero, with statistics of its own."""
    from diffusers import AutoencoderKLLTXVideo

    vae = AutoencoderKLLTXVideo(**VAES[release])
    for name, parameter in vae.named_parameters():
        if "per_channel_scale" in name:
            parameter.data.normal_(0, 0.5)
    out = vae.encoder.conv_out.conv  # its last channel is the log-variance: pipelines draw the picture's latents, we take the mode
    out.weight.data[-1], out.bias.data[-1] = 0, -30
    vae.latents_mean.normal_(0, 0.3)
    vae.latents_std.uniform_(0.5, 1.5)
    return vae


def write_tiny_ltx(folder: Path, release: str = "0.9", seed: int = 0) -> Path:
    """Writes the folder and returns it."""
    from diffusers import FlowMatchEulerDiscreteScheduler, LTXVideoTransformer3DModel
    from transformers import ByT5Tokenizer, T5Config, T5EncoderModel

    torch.manual_seed(seed)
    LTXVideoTransformer3DModel(
        num_attention_heads=2, attention_head_dim=16, cross_attention_dim=32, num_layers=2, caption_channels=16
    ).save_pretrained(folder / "transformer")
    tiny_vae(release).save_pretrained(folder / "vae")
    text = T5Config(vocab_size=384, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, feed_forward_proj="gated-gelu")
    T5EncoderModel(text).save_pretrained(folder / "text_encoder")
    ByT5Tokenizer(model_max_length=128).save_pretrained(folder / "tokenizer")
    newer = release == "0.9.5"  # whose pipeline brings its own schedule
    FlowMatchEulerDiscreteScheduler(**({} if newer else SCHEDULER)).save_pretrained(folder / "scheduler")
    name = "LTXConditionPipeline" if newer else "LTXPipeline"
    (folder / "model_index.json").write_text(f'{{"_class_name": "{name}"}}', encoding="utf-8")
    return folder


def write_tiny_ltx_095(folder: Path) -> Path:
    """Writes a folder of the release 0.9.5."""
    return write_tiny_ltx(folder, "0.9.5")


def pipeline(folder: Path, name: str):
    """A diffusers pipeline on the folder's parts."""
    import diffusers
    from transformers import AutoTokenizer, T5EncoderModel

    made = getattr(diffusers, name)(
        diffusers.FlowMatchEulerDiscreteScheduler.from_pretrained(folder / "scheduler"),
        diffusers.AutoencoderKLLTXVideo.from_pretrained(folder / "vae"),
        T5EncoderModel.from_pretrained(folder / "text_encoder"),
        AutoTokenizer.from_pretrained(folder / "tokenizer"),
        diffusers.LTXVideoTransformer3DModel.from_pretrained(folder / "transformer"),
    )
    made.set_progress_bar_config(disable=True)
    return made


def pipeline_calls(folder: Path, name: str, prompt: str, size: Size, **more: object) -> list[Call]:
    """The transformer's calls while a pipeline of diffusers draws a video without guidance."""
    frames, height, width = size
    made = pipeline(folder, name)
    with calls_of(made.transformer) as calls:
        made(
            prompt=prompt, height=height, width=width, num_frames=frames, num_inference_steps=3, guidance_scale=1.0,
            output_type="latent", **more,
        )  # fmt: skip
    return calls


def as_points(calls: list[Call], size: Size) -> list[Point]:
    """Points of calls: LTXPipeline's scheduler steps along the output, LTXConditionPipeline's along its negative and backwards."""
    frames, height, width = size
    shape = ((frames - 1) // 8 + 1, height // 32, width // 32)

    def latents(tokens: Tensor) -> Tensor:
        return tokens.transpose(1, 2).reshape(1, -1, *shape)

    return [Point(latents(c.kwargs["hidden_states"]), c.kwargs["timestep"].max().item() / 1000, latents(c.output)) for c in calls]


def image_points(folder: Path, prompt: str, size: Size, pictures: dict[str, Image]) -> list[Point]:
    """LTXImageToVideoPipeline."""
    return as_points(pipeline_calls(folder, "LTXImageToVideoPipeline", prompt, size, image=pictures["first_frame"]), size)


def condition_points(folder: Path, prompt: str, size: Size, pictures: dict[str, Image]) -> list[Point]:
    """LTXConditionPipeline without the noise that it can add to the picture."""
    image = pictures["first_frame"]
    return as_points(pipeline_calls(folder, "LTXConditionPipeline", prompt, size, image=image, image_cond_noise_scale=0.0), size)
