"""Random FramePacks of either order as ordinary diffusers folders, and what their pipeline computes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor

from tests.tiny import Size
from tests.tiny.capture import Call, Point, calls_of
from tests.tiny.hunyuan_video import POOLED_WIDTH, TEXT_WIDTH, llama_config, write_clip_text, write_llama_tokenizer, write_vae

SEEN_WIDTH, WINDOW = 8, 9  # channels of SigLIP, latents of a section
SAMPLING = {"backward": "inverted_anti_drifting", "forward": "vanilla"}  # the pipeline's names of the orders


def write_framepack(folder: Path, seed: int = 0, name: str = "FramePackI2V_HY", dynamic: bool = False) -> Path:
    """Writes the folder, its transformer called `name` as a released one is, and returns it."""
    from diffusers import FlowMatchEulerDiscreteScheduler, HunyuanVideoFramepackTransformer3DModel
    from transformers import LlamaModel, SiglipImageProcessor, SiglipVisionConfig, SiglipVisionModel

    torch.manual_seed(seed)
    transformer = HunyuanVideoFramepackTransformer3DModel(
        num_attention_heads=2, attention_head_dim=12, num_layers=2, num_single_layers=2, num_refiner_layers=1, rope_axes_dim=(4, 4, 4),
        text_embed_dim=TEXT_WIDTH, pooled_projection_dim=POOLED_WIDTH, has_image_proj=True, image_proj_dim=SEEN_WIDTH,
        has_clean_x_embedder=True,
    )  # fmt: skip
    transformer.register_to_config(_name_or_path=f"lllyasviel/{name}")
    transformer.save_pretrained(folder / "transformer")
    tokenizer: Any = write_llama_tokenizer(folder / "tokenizer")
    LlamaModel(llama_config(tokenizer.pad_token_id)).save_pretrained(folder / "text_encoder")
    write_clip_text(folder)
    write_vae(folder)
    seen = SiglipVisionConfig(
        hidden_size=SEEN_WIDTH, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14
    )
    SiglipVisionModel(seen).save_pretrained(folder / "image_encoder")
    SiglipImageProcessor(size={"height": 28, "width": 28}).save_pretrained(folder / "feature_extractor")
    FlowMatchEulerDiscreteScheduler(shift=7.0, use_dynamic_shifting=dynamic).save_pretrained(folder / "scheduler")
    (folder / "model_index.json").write_text('{"_class_name": "HunyuanVideoFramepackPipeline"}', encoding="utf-8")
    return folder


write_forward = partial(write_framepack, name="FramePack_F1_I2V_HY_20250503")


def open_pipeline(folder: Path) -> Any:
    """The diffusers pipeline, whose start latent is the mode of the posterior as ours is, not a sample of it."""
    from diffusers import (
        AutoencoderKLHunyuanVideo,
        FlowMatchEulerDiscreteScheduler,
        HunyuanVideoFramepackPipeline,
        HunyuanVideoFramepackTransformer3DModel,
    )
    from transformers import AutoTokenizer, CLIPTextModel, LlamaModel, SiglipImageProcessor, SiglipVisionModel

    pipeline: Any = HunyuanVideoFramepackPipeline(
        text_encoder=LlamaModel.from_pretrained(folder / "text_encoder"), tokenizer=AutoTokenizer.from_pretrained(folder / "tokenizer"),
        transformer=HunyuanVideoFramepackTransformer3DModel.from_pretrained(folder / "transformer"),
        vae=AutoencoderKLHunyuanVideo.from_pretrained(folder / "vae"),
        scheduler=FlowMatchEulerDiscreteScheduler.from_pretrained(folder / "scheduler"),
        text_encoder_2=CLIPTextModel.from_pretrained(folder / "text_encoder_2"),
        tokenizer_2=AutoTokenizer.from_pretrained(folder / "tokenizer_2"),
        image_encoder=SiglipVisionModel.from_pretrained(folder / "image_encoder"),
        feature_extractor=SiglipImageProcessor.from_pretrained(folder / "feature_extractor"),
    )  # fmt: skip
    vae = pipeline.vae

    def start(image: Tensor, **_: Any) -> Tensor:
        return vae.encode(image.unsqueeze(2)).latent_dist.mode() * vae.config.scaling_factor

    pipeline.prepare_image_latents = start  # type: ignore[method-assign]
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def sampled(
    pipeline: Any, order: str, prompt: str, size: Size, pictures: dict[str, Image], steps: int = 2, noise: Sequence[Tensor] = (),
    made: Sequence[Tensor] = (), output: str = "latent", guidance: float = 6.0,
) -> tuple[list[Call], Any]:  # fmt: skip
    """The pipeline's calls of its transformer, and its result, for a video of 36·S + 1 frames in S sections.

    `noise` is that of each section and `made` what shall come out of it, in the order of making; without them, what comes.
    """
    frames, height, width = size
    sections = (frames - 1) // (4 * WINDOW)
    if noise:
        parts = iter(noise)
        pipeline.prepare_latents = lambda *_, **__: next(parts)
    results = iter(made)

    def replace_result(_: Any, step: int, __: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"latents": next(results)} if made and step == steps - 1 else tensors

    with calls_of(pipeline.transformer) as calls:
        result = pipeline(
            image=pictures["first_frame"], last_image=pictures.get("last_frame"), prompt=prompt, height=height, width=width,
            num_frames=(4 * WINDOW - 3) * sections, num_inference_steps=steps, guidance_scale=guidance, sampling_type=SAMPLING[order],
            generator=torch.Generator().manual_seed(5), output_type=output, callback_on_step_end=replace_result, return_dict=False,
        )[0]  # fmt: skip
    return calls, result


def pipeline_points(folder: Path, prompt: str, size: Size, pictures: dict[str, Image], order: str = "backward") -> list[Point]:
    """The steps of the last section that HunyuanVideoFramepackPipeline makes: its transformer's output is the velocity.

    The first frame is given; the last one is not, as in training.
    """
    pipeline = open_pipeline(folder)
    calls, latents = sampled(pipeline, order, prompt, size, {"first_frame": pictures["first_frame"]})
    clip = latents[-1][0] / pipeline.vae.config.scaling_factor
    number = 0 if order == "backward" else (clip.shape[1] - 1) // WINDOW - 1
    return [Point(call.kwargs["hidden_states"], call.kwargs["timestep"][0].item() / 1000, call.output, clip, number) for call in calls[-2:]]


forward_points = partial(pipeline_points, order="forward")
