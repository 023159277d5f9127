"""LTX-Video as a ModelFamily. Formulas follow diffusers' LTXPipeline and LTXImageToVideoPipeline, from 0.9.5 on LTXConditionPipeline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import draws
from ...errors import UserError, fail
from ..base import FamilySpec, FrameRule, GoalValues, ImageEncoder, ModelFamily, TextEncoder, adapter_presets, constant, kept
from ..files import ModelFiles, missing_parts
from ..key_map import KeyMap
from ..pixels import decode_latents, encode_frames
from ..text_encoders import load_encoder
from ..text_mask import MASK, padded
from . import keys
from .comfy_files import write_comfy_files
from .release import Release
from .single_files import LAYOUT
from .tokens import pack, positions, unpack

if TYPE_CHECKING:
    import torch
    from diffusers import ModelMixin
    from torch import Tensor, nn

DECODE_TIMESTEP, DECODE_NOISE = 0.05, 0.025  # what the model cards give the timestep-conditioned decoders
ATTENTION = r"transformer_blocks\.\d+\.attn[12]\.(to_q|to_k|to_v|to_out\.0)"
# Lightricks' own trainer: rank 32 at 2e-4, whatever is taught. That a motion takes the general, lower rate is our judgement.
GOALS = {"character": GoalValues(rank=32), "style": GoalValues(learning_rate=2e-4)}
FEED_FORWARD = r"transformer_blocks\.\d+\.ff\.net\.(0\.proj|2)"


class LTXVideo(ModelFamily):
    """LTX-Video 0.9 to 0.9.8, 2B and 13B, from a text and from a first frame."""

    layout = LAYOUT

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        self.config, self.vae_config, self.release = files.config("transformer"), files.config("vae"), Release.of(files)
        bucket, stride = (17, 64, 64) if self.release.size == "small" else (121, 512, 704), (8, 32, 32)
        shift = self.release.shift((bucket[0] // 8 + 1) * (bucket[1] // 32) * (bucket[2] // 32))
        self.spec = FamilySpec(
            family="ltx_video",
            variant=self.release.variant,
            frame_rule=FrameRule(8, 1),
            size_multiple=32,
            fps=25.0,
            latent_channels=self.config.get("in_channels", 128),
            latent_stride=stride,
            text_length=256 if self.release.newer else 128,
            train_shift=shift,
            sample_shift=shift,
            guidance=1.0 if self.release.distilled else 3.0,
            default_bucket=bucket,
            conditions=("first_frame",),
            adapter_targets=adapter_presets(ATTENTION, FEED_FORWARD),
            text_width=self.config.get("caption_channels", 4096),
            step_distilled=self.release.distilled,
            goals=GOALS,
            folds_alpha=True,  # diffusers' LTXVideoLoraLoaderMixin reads ComfyUI's names, and refuses a file with alpha tensors
        )

    # files

    @classmethod
    def recognises(cls, files: ModelFiles) -> bool:
        """True for LTX-Video and, to say why it cannot be trained, for LTX-2."""
        return files.config("transformer").get("_class_name") in ("LTXVideoTransformer3DModel", "LTX2VideoTransformer3DModel")

    def check_files(self) -> None:
        """Raises UserError for missing parts, and for LTX-2, whose transformer takes sound and another text encoder."""
        if self.config.get("_class_name") != "LTXVideoTransformer3DModel":
            cure = "Choose LTX-Video 0.9 to 0.9.8 (2B or 13B)."
            raise fail(self.files.name, "is LTX-2, which makes sound with the picture: it is not supported yet.", cure)
        problems = missing_parts(self.files, ("transformer", "vae", "text_encoder"), ("tokenizer",))
        if problems:
            raise UserError(problems)

    @property
    def transformer_class(self) -> type[ModelMixin]:
        """LTXVideoTransformer3DModel."""
        from diffusers import LTXVideoTransformer3DModel

        return LTXVideoTransformer3DModel

    def weight_classes(self) -> dict[str, type[nn.Module]]:
        """The transformers', the VAE's and the encoders'."""
        from diffusers import AutoencoderKLLTXVideo
        from transformers import T5EncoderModel

        return {**super().weight_classes(), "vae": AutoencoderKLLTXVideo, "text_encoder": T5EncoderModel}

    def load_vae(self) -> nn.Module:
        """AutoencoderKLLTXVideo on the CPU."""
        from diffusers import AutoencoderKLLTXVideo

        return self.files.load("vae", AutoencoderKLLTXVideo, self.vae_dtype).requires_grad_(False).eval()

    def load_text_encoder(self, dtype: torch.dtype) -> TextEncoder:
        """Tokenizer and T5EncoderModel on the CPU."""
        from transformers import T5EncoderModel

        return load_encoder(self.files, T5EncoderModel, dtype)

    # encoders

    def encode_video(self, vae: Any, frames: Tensor) -> dict[str, Tensor]:
        """[F, H, W, 3] uint8 -> {"latents": [128, T, h, w] float32}, posterior mode, un-normalised."""
        return {"latents": encode_frames(vae, frames)}

    def encode_conditions(
        self, vae: Any, encoder: ImageEncoder | None, pictures: Mapping[str, Tensor], size: tuple[int, int, int]
    ) -> dict[str, Tensor]:
        """{"first_frame": [128, 1, h, w]}, the picture encoded as a video of one frame, as LTXImageToVideoPipeline does."""
        return {name: encode_frames(vae, picture[None]) for name, picture in pictures.items()}

    def decode_video(self, vae: Any, latents: Tensor) -> Tensor:
        """Model-space latents [1, 128, T, h, w] -> [F, H, W, 3] uint8 on the CPU.

        Decoders from 0.9.1 on take away a little noise, which the pipelines add to the latents before.
        """
        parameter = next(vae.parameters())
        mean, std = self._latent_statistics(latents)
        latents, timestep = latents * std + mean, None
        if self.vae_config.get("timestep_conditioning"):
            noise = draws.normal(tuple(latents.shape), "decode").to(latents)
            latents, timestep = (1 - DECODE_NOISE) * latents + DECODE_NOISE * noise, parameter.new_tensor([DECODE_TIMESTEP])
        with draws.module_randomness(parameter.device, "decode"):
            return decode_latents(vae, latents, timestep)

    def encode_text(self, encoder: TextEncoder, text: str, image: Tensor | None = None) -> dict[str, Tensor]:
        """{"text": [L, D] float32} of the caption's L tokens; LTXPipeline, not LTXConditionPipeline, lets the encoder see the padding."""
        import torch

        length, padding = self.spec.text_length, False if self.release.newer else "max_length"
        tokens = encoder.tokenizer(text, padding=padding, truncation=True, max_length=length, return_tensors="pt")
        if len(encoder.tokenizer(text).input_ids) > length:
            encoder.truncated.append(text)
        device = next(encoder.module.parameters()).device
        with torch.no_grad():
            hidden = encoder.module(tokens.input_ids.to(device)).last_hidden_state
        return {"text": hidden[0, tokens.attention_mask[0].bool().to(device)].float().cpu()}

    # the step

    def normalize(self, latents: Tensor) -> Tensor:
        """(latents - mean) · scaling factor / deviation per channel, constants in the VAE's weights."""
        mean, std = self._latent_statistics(latents)
        return (latents - mean) / std

    def _latent_statistics(self, like: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = (constant(values, like).view(1, -1, 1, 1, 1) for values in self._statistics)
        return mean, std

    @cached_property
    def _statistics(self) -> tuple[list[float], list[float]]:
        with kept():
            mean, std = (self.files.tensor("vae", name).float() for name in ("latents_mean", "latents_std"))
            return mean.tolist(), (std / self.vae_config.get("scaling_factor", 1.0)).tolist()

    def text_inputs(self, texts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """{"encoder_hidden_states": [B, L, D]}, L the longest of the captions; "encoder_attention_mask" [B, L] if one is shorter."""
        hidden, mask = padded([text["text"] for text in texts])
        return {"encoder_hidden_states": hidden, **({} if mask is None else {MASK: mask.float()})}

    def denoiser_inputs(self, x: Tensor, sigma: Tensor, text: dict[str, Tensor], given: dict[str, Tensor]) -> dict[str, Any]:
        """Arguments of LTXVideoTransformer3DModel; its timestep is 1000 · sigma, for each token where some are clean, and 0 there."""
        timestep, clean = sigma[:, None] * 1000, self._clean(x, given)
        if clean is not None:
            timestep = timestep * (1 - clean.expand(-1, -1, -1, *x.shape[-2:]).flatten(1))
        coordinates = positions(x.shape, self.spec.latent_stride, self.spec.fps, self.release.newer, x.device)
        return {"hidden_states": pack(x), "timestep": timestep, "video_coords": coordinates, MASK: None, **text}

    def conditioned(self, x: Tensor, given: dict[str, Tensor]) -> Tensor:
        """X with a clean first frame where one is given."""
        clean = self._clean(x, given)
        return x if clean is None else x.where(clean == 0, self.normalize(given["first_frame"]).to(x))

    def loss_mask(self, x: Tensor, given: dict[str, Tensor]) -> Tensor | None:
        """0 in the first frame of those examples that begin with a given one."""
        clean = self._clean(x, given)
        return None if clean is None else 1 - clean

    def _clean(self, x: Tensor, given: dict[str, Tensor]) -> Tensor | None:
        """[B, 1, T, 1, 1], 1 where x is given; None if it is nowhere."""
        import torch

        if "first_frame" not in given:
            return None
        has = given.get("has_first_frame", torch.ones(x.shape[0], device=x.device))
        clean = x.new_zeros(x.shape[0], 1, x.shape[2], 1, 1)
        clean[:, :, 0] = has.to(x).view(-1, 1, 1, 1)
        return clean

    def velocity(self, output: Any, x: Tensor, sigma: Tensor) -> Tensor:
        """The output, which is the velocity, as latents again."""
        return unpack(output[0], x.shape)

    # noise levels

    def shift(self, latent_shape: Sequence[int], sampling: bool) -> float:
        """Grows with the number of tokens; the same in training and sampling."""
        return self.release.shift(math.prod(latent_shape[-3:]))

    # LoRA

    @property
    def keys(self) -> KeyMap:
        """Names of the original release."""
        return keys.TRANSFORMER

    def write_comfy_files(self, transformer: Path, vae: Path) -> None:
        """Two .safetensors files in the names of the original release."""
        write_comfy_files(self.files, self.release.newer, transformer, vae)
