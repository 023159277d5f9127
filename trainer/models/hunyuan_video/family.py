"""HunyuanVideo, text-to-video and image-to-video, as a ModelFamily.

Target, timesteps and conditions follow diffusers' HunyuanVideoPipeline and HunyuanVideoImageToVideoPipeline
(pipeline_hunyuan_video.py, pipeline_hunyuan_video_image2video.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import Problem, UserError
from .. import text_mask
from ..base import Denoise, FamilySpec, FrameRule, ImageEncoder, ModelFamily, ModelInputs, TextEncoder, adapter_presets
from ..files import ModelFiles, missing_parts
from ..key_map import KeyMap
from ..pixels import decode_latents, encode_frames
from . import image_text, keys
from . import text as llama_text
from .comfy_files import write_comfy_files
from .single_files import LAYOUT

if TYPE_CHECKING:
    import torch
    from diffusers import ModelMixin
    from torch import Tensor, nn

DOUBLE, SINGLE = r"transformer_blocks\.\d+", r"single_transformer_blocks\.\d+"
ATTENTION = rf"{DOUBLE}\.attn\.(to_q|to_k|to_v|to_out\.0|add_q_proj|add_k_proj|add_v_proj|to_add_out)|{SINGLE}\.attn\.(to_q|to_k|to_v)"
FEED_FORWARD = rf"{DOUBLE}\.ff(_context)?\.net\.(0\.proj|2)|{SINGLE}\.(proj_mlp|proj_out)"
ADAPTER_TARGETS = adapter_presets(ATTENTION, FEED_FORWARD)
CONCAT, REPLACE = "latent_concat", "token_replace"  # forms of image-to-video, the configuration's image_condition_type
IMAGE_STRIDE = {CONCAT: 2, REPLACE: 4}  # every so many of the picture's tokens are seen (image_embed_interleave)
GUIDANCE = 6.0  # the pipelines' embedded guidance
PICTURE_SHARE = 0.001  # of the starting noise that is the picture (prepare_latents of the image-to-video pipeline)
WIDTH = 3072  # of the released models; others are test models
FEW_STEPS_SHIFT = 17.0  # of FastHunyuan, distilled to six steps; text-to-video itself has 7


class HunyuanVideo(ModelFamily):
    """A HunyuanVideo of any of the three forms, told apart by its transformer's configuration."""

    layout = LAYOUT

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        transformer, scheduler, vae = map(files.config, ("transformer", "scheduler", "vae"))
        self.config = transformer
        self.form: str | None = transformer.get("image_condition_type")
        self.scale = float(vae.get("scaling_factor", 0.476986))
        self.latent_channels = int(vae.get("latent_channels", 16))
        shift = float(scheduler.get("shift") or 7.0)
        distilled = bool(transformer.get("guidance_embeds", True))
        full = transformer.get("num_attention_heads", 24) * transformer.get("attention_head_dim", 128) == WIDTH
        first = ("first_frame",) if self.form else ()
        self.spec = FamilySpec(
            family="hunyuan_video",
            variant={None: "t2v", CONCAT: "i2v-concat", REPLACE: "i2v-replace"}.get(self.form, "unknown"),
            frame_rule=FrameRule(4, 5 if self.form else 1),  # a picture alone leaves image-to-video nothing to learn
            size_multiple=16,
            fps=24.0,
            latent_channels=self.latent_channels,
            latent_stride=(4, 8, 8),
            text_length=image_text.length(IMAGE_STRIDE.get(self.form, 1)) if self.form else llama_text.TEXT_LENGTH,
            train_shift=shift,
            sample_shift=shift,
            guidance=GUIDANCE if distilled else 1.0,
            default_bucket=(49, 512, 768) if full else (17, 64, 64),
            conditions=first,
            required=first,
            text_sees_image=bool(self.form),
            guidance_input=1.0 if distilled else None,
            adapter_targets=ADAPTER_TARGETS,
            step_distilled=not self.form and shift >= FEW_STEPS_SHIFT,
        )

    # files

    @classmethod
    def recognises(cls, files: ModelFiles) -> bool:
        """True for a model whose transformer is a HunyuanVideoTransformer3DModel."""
        return files.config("transformer").get("_class_name") == "HunyuanVideoTransformer3DModel"

    def check_files(self) -> None:
        """Raises UserError for missing parts, other inputs than the three forms have, and a text encoder of another form."""
        small = ("tokenizer", "tokenizer_2", *(("image_processor",) if self.form else ()))
        apart = bool(self.form and self.files.config("image_encoder"))  # a Llava of two files
        seeing = ("image_encoder",) if apart else ()
        problems = missing_parts(self.files, ("transformer", "vae", "text_encoder", "text_encoder_2", *seeing), small)
        channels = int(self.config.get("in_channels", 16))
        expected = self.latent_channels * 2 + 1 if self.form == CONCAT else self.latent_channels
        if self.spec.variant == "unknown" or channels != expected:
            found = f"is no HunyuanVideo that can be trained: it has {channels} input channels"
            found += f" and the image condition '{self.form}'." if self.form else "."
            cure = (
                f"Text-to-video and token replace have {self.latent_channels} channels, latent concat has {self.latent_channels * 2 + 1}."
            )
            problems.append(Problem(f"{self.files.name}, transformer", found, cure))
        kind, wanted = self.files.config("text_encoder").get("model_type"), "llava" if self.form and not apart else "llama"
        if kind and kind != wanted:
            form = "image-to-video" if self.form else "text-to-video"
            problems.append(
                Problem(f"{self.files.name}, text_encoder", f"is a {kind}.", f"HunyuanVideo {form} reads its text by a {wanted}.")
            )
        if problems:
            raise UserError(problems)

    @property
    def transformer_class(self) -> type[ModelMixin]:
        """HunyuanVideoTransformer3DModel."""
        from diffusers import HunyuanVideoTransformer3DModel

        return HunyuanVideoTransformer3DModel

    def weight_classes(self) -> dict[str, type[nn.Module]]:
        """The transformers', the VAE's and the encoders'."""
        from diffusers import AutoencoderKLHunyuanVideo
        from transformers import CLIPTextModel, CLIPVisionModel, LlamaModel, LlavaForConditionalGeneration

        whole = self.form and not self.files.has("image_encoder")

        return {
            **super().weight_classes(),
            "vae": AutoencoderKLHunyuanVideo,
            "text_encoder": LlavaForConditionalGeneration if whole else LlamaModel,
            "text_encoder_2": CLIPTextModel,
            "image_encoder": CLIPVisionModel,
        }

    def prepare_transformer(self, transformer: nn.Module) -> None:
        """Its attention gets a mask only where texts are padded."""
        from .attention import mask_where_padded

        mask_where_padded(transformer)

    def load_vae(self) -> nn.Module:
        """AutoencoderKLHunyuanVideo on the CPU."""
        from diffusers import AutoencoderKLHunyuanVideo

        return self.files.load("vae", AutoencoderKLHunyuanVideo, self.vae_dtype).requires_grad_(False).eval()

    def load_text_encoder(self, dtype: torch.dtype) -> TextEncoder:
        """Llama or, for image-to-video, Llava; and CLIP."""
        return (image_text if self.form else llama_text).load_text_encoder(self.files, dtype)

    # encoders

    def encode_video(self, vae: Any, frames: Tensor) -> dict[str, Tensor]:
        """[F, H, W, 3] uint8 -> {"latents": [16, T, h, w] float32}, posterior mode, not scaled."""
        return {"latents": encode_frames(vae, frames)}

    def encode_conditions(
        self, vae: Any, encoder: ImageEncoder | None, pictures: Mapping[str, Tensor], size: tuple[int, int, int]
    ) -> dict[str, Tensor]:
        """{"image_latents": [16, 1, h, w]}: the first frame as a clip of its own, not scaled."""
        return {"image_latents": encode_frames(vae, pictures["first_frame"][None])} if self.form else {}

    def decode_video(self, vae: Any, latents: Tensor) -> Tensor:
        """Model-space latents [1, 16, T, h, w] -> [F, H, W, 3] uint8 on the CPU."""
        return decode_latents(vae, latents / self.scale)

    def encode_text(self, encoder: TextEncoder, text: str, image: Tensor | None = None) -> dict[str, Tensor]:
        """{"text": [L, D], "pooled": [P]} float32; image-to-video models see the picture, which is black if there is none."""
        import torch

        with torch.no_grad():
            if self.form:
                return image_text.encode_text(encoder, text, image, IMAGE_STRIDE[self.form])
            return llama_text.encode_text(encoder, text)

    # the step

    def normalize(self, latents: Tensor) -> Tensor:
        """Latents times the VAE's scaling factor."""
        return latents * self.scale

    def text_inputs(self, texts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """{"encoder_hidden_states", "pooled_projections"}, and "encoder_attention_mask" where texts are padded."""
        return llama_text.text_inputs(texts)

    def denoiser_inputs(self, x: Tensor, sigma: Tensor, text: dict[str, Tensor], given: dict[str, Tensor]) -> dict[str, Any]:
        """Arguments of HunyuanVideoTransformer3DModel: its timestep is 1000 · sigma, its guidance 1000 times what is given.

        Latent concat appends the picture's latents, zero after the first frame, and a mask that is 1 there.
        """
        import torch

        if self.form == CONCAT:
            first = torch.zeros_like(x)
            first[:, :, :1] = self.normalize(given["image_latents"])
            mask = torch.zeros_like(x[:, :1])
            mask[:, :, :1] = 1
            x = torch.cat([x, first, mask], 1)
        guidance = {} if self.spec.guidance_input is None else {"guidance": given["guidance"] * 1000}
        return {"hidden_states": x, "timestep": sigma * 1000, **guidance, **text}

    def conditioned(self, x: Tensor, given: dict[str, Tensor]) -> Tensor:
        """For token replace, x with the clean picture as its first latent frame."""
        import torch

        return torch.cat([self.normalize(given["image_latents"]).to(x), x[:, :, 1:]], 2) if self.form == REPLACE else x

    def loss_mask(self, x: Tensor, given: dict[str, Tensor]) -> Tensor | None:
        """For token replace, 0 at the first latent frame, [1, 1, T, 1, 1]."""
        if self.form != REPLACE:
            return None
        mask = x.new_ones(1, 1, x.shape[2], 1, 1)
        mask[:, :, 0] = 0
        return mask

    def predict(self, transformer: nn.Module, inputs: ModelInputs) -> Tensor:
        """Velocity predicted; the transformer is told whether texts are padded."""
        return super().predict(transformer, text_mask.told(transformer, inputs))

    def generate(self, denoise: Denoise, noise: Tensor, given: dict[str, Tensor]) -> Tensor:
        """Image-to-video begins with a little of the picture in every frame's noise, as its pipeline does."""
        if self.form:
            noise = noise * (1 - PICTURE_SHARE) + self.normalize(given["image_latents"]) * PICTURE_SHARE
        return denoise(noise, given)

    def text_shapes(self) -> dict[str, tuple[int, ...]]:
        """Llama's states and CLIP's pooled embedding."""
        return {
            "text": (self.spec.text_length, self.config.get("text_embed_dim", 4096)),
            "pooled": (self.config.get("pooled_projection_dim", 768),),
        }

    def clip_shapes(self, frames: int, height: int, width: int) -> dict[str, tuple[int, ...]]:
        """With the first frame's latents for image-to-video."""
        shapes = super().clip_shapes(frames, height, width)
        first = shapes.pop("first_frame", None)
        return {**shapes, **({"image_latents": first} if first else {})}

    # LoRA

    @property
    def keys(self) -> KeyMap:
        """Names of ComfyUI's own model."""
        return keys.TRANSFORMER

    def write_comfy_files(self, transformer: Path, vae: Path) -> None:
        """Two .safetensors files in ComfyUI's names; its loader expects heads of 128 channels."""
        write_comfy_files(self.files, transformer, vae)
