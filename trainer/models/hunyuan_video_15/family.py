"""HunyuanVideo-1.5 as a ModelFamily. Formulas follow diffusers' HunyuanVideo15Pipeline and HunyuanVideo15ImageToVideoPipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...errors import Problem, UserError
from .. import text_mask
from ..base import FamilySpec, FrameRule, GoalValues, ImageEncoder, ModelFamily, ModelInputs, TextEncoder, adapter_presets
from ..files import ModelFiles, missing_parts
from ..key_map import KeyMap
from ..pixels import decode_latents, encode_frames
from . import keys
from . import text as texts_of
from .comfy_files import write_comfy_files
from .single_files import LAYOUT
from .vae_mask import mask_frames_at_once

if TYPE_CHECKING:
    import torch
    from diffusers import ModelMixin
    from torch import Tensor, nn

DEFAULTS = {  # HunyuanVideo15Transformer3DModel's
    "in_channels": 65, "num_layers": 54, "image_embed_dim": 1152, "target_size": 640, "task_type": "i2v", "use_meanflow": False,
}  # fmt: skip
BUCKETS = {640: ("480p", (49, 480, 832)), 960: ("720p", (49, 720, 1280))}  # target_size -> name, default frames x height x width
SMALL = ("small", (17, 64, 64))  # test models
TEXTS = {f"{text_mask.MASK}{number}": f"encoder_hidden_states{number}" for number in ("", "_2")}  # by mask
# musubi-tuner's documentation of this model: 1e-4 and shift 2. That a motion keeps the model's own, higher one is our judgement.
GOALS = {"character": GoalValues(learning_rate=1e-4, shift=2.0), "style": GoalValues(shift=2.0)}
GUIDANCE = 6.0  # the released guiders', unless the model is distilled to need none


def adapter_targets(layers: int) -> dict[str, str]:
    """Presets; the last block's text goes nowhere, so what only that passes through is left out."""
    block, earlier = r"transformer_blocks\.\d+", rf"transformer_blocks\.(?!{layers - 1}\.)\d+"
    attention = rf"{block}\.attn\.(to_q|to_k|to_v|to_out\.0|add_k_proj|add_v_proj)|{earlier}\.attn\.(add_q_proj|to_add_out)"
    feed_forward = rf"{block}\.ff\.net\.(0\.proj|2)|{earlier}\.ff_context\.net\.(0\.proj|2)"
    return adapter_presets(attention, feed_forward)


class HunyuanVideo15(ModelFamily):
    """HunyuanVideo-1.5 at 480p or 720p, from a text or from a first frame, told apart by its transformer's task_type."""

    layout = LAYOUT

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        scheduler, vae, guider = map(files.config, ("scheduler", "vae", "guider"))
        self.config: dict[str, Any] = DEFAULTS | files.config("transformer")
        self.scale = float(vae.get("scaling_factor", 1.03682))
        self.channels = int(vae.get("latent_channels", 32))
        self.task: str = self.config["task_type"]
        shift, layers = float(scheduler.get("shift") or 7.0), int(self.config["num_layers"])
        guidance = float(guider.get("guidance_scale", GUIDANCE)) if guider.get("enabled", True) else 1.0
        size, bucket = BUCKETS.get(self.config["target_size"], SMALL) if layers == DEFAULTS["num_layers"] else SMALL
        first = ("first_frame",) if self.task == "i2v" else ()
        self.spec = FamilySpec(
            family="hunyuan_video_15",
            variant=f"{self.task}-{size}",
            frame_rule=FrameRule(4, 5 if first else 1),  # a picture alone leaves image-to-video nothing to learn
            size_multiple=16,
            fps=24.0,
            latent_channels=self.channels,
            latent_stride=(4, 16, 16),
            text_length=texts_of.TEXT_LENGTH,
            train_shift=shift,
            sample_shift=shift,
            guidance=guidance,
            default_bucket=bucket,
            conditions=first,
            required=first,
            image_encoder=bool(first),
            adapter_targets=adapter_targets(layers),
            step_distilled=guidance == 1,
            diffusers_copy=True,
            goals=GOALS,
        )

    # files

    @classmethod
    def recognises(cls, files: ModelFiles) -> bool:
        """True for a model whose transformer is a HunyuanVideo15Transformer3DModel."""
        return files.config("transformer").get("_class_name") == "HunyuanVideo15Transformer3DModel"

    def check_files(self) -> None:
        """Raises UserError for missing parts, for few-step (MeanFlow) and for super-resolution models."""
        weights = ["transformer", "vae", "text_encoder", "text_encoder_2", *(["image_encoder"] if self.spec.image_encoder else [])]
        small = ["tokenizer", "tokenizer_2", *(["feature_extractor"] if self.spec.image_encoder else [])]
        problems = missing_parts(self.files, weights, small)
        if found := self._unsupported():
            cure = "Use HunyuanVideo-1.5 T2V or I2V at 480p or 720p; few-step and super-resolution models are not supported."
            problems.append(Problem(f"{self.files.name}, transformer", f"cannot be trained: {found}.", cure))
        if problems:
            raise UserError(problems)

    def _unsupported(self) -> str:
        """Why the transformer is neither text-to-video nor image-to-video; empty if it is."""
        channels, expected = self.config["in_channels"], 2 * self.channels + 1
        if self.config["use_meanflow"]:
            return "it takes a second timestep (use_meanflow)"
        if channels != expected:
            return f"it has {channels} input channels, not {expected}"
        return "" if self.task in ("t2v", "i2v") else f"its task_type is '{self.task}', not t2v or i2v"

    @property
    def transformer_class(self) -> type[ModelMixin]:
        """HunyuanVideo15Transformer3DModel."""
        from diffusers import HunyuanVideo15Transformer3DModel

        return HunyuanVideo15Transformer3DModel

    def weight_classes(self) -> dict[str, type[nn.Module]]:
        """The transformers', the VAE's and the encoders'."""
        from diffusers import AutoencoderKLHunyuanVideo15
        from transformers import Qwen2_5_VLTextModel, SiglipVisionModel, T5EncoderModel

        return {
            **super().weight_classes(),
            "vae": AutoencoderKLHunyuanVideo15,
            "text_encoder": Qwen2_5_VLTextModel,
            "text_encoder_2": T5EncoderModel,
            "image_encoder": SiglipVisionModel,
        }

    def prepare_transformer(self, transformer: nn.Module) -> None:
        """Its attention gets a mask only where texts are padded."""
        from .attention import mask_where_padded

        mask_where_padded(transformer)

    def load_vae(self) -> nn.Module:
        """AutoencoderKLHunyuanVideo15 on the CPU."""
        from diffusers import AutoencoderKLHunyuanVideo15

        vae = self.files.load("vae", AutoencoderKLHunyuanVideo15, self.vae_dtype).requires_grad_(False).eval()
        mask_frames_at_once(vae)
        return vae

    def load_text_encoder(self, dtype: torch.dtype) -> TextEncoder:
        """Tokenizers and encoders of Qwen2.5-VL and ByT5 on the CPU."""
        return texts_of.load_text_encoder(self.files, dtype)

    def load_image_encoder(self, dtype: torch.dtype) -> ImageEncoder:
        """SiglipImageProcessor and SiglipVisionModel on the CPU."""
        from transformers import SiglipImageProcessor, SiglipVisionModel

        module = self.files.load("image_encoder", SiglipVisionModel, dtype)
        processor = SiglipImageProcessor.from_pretrained(self.files.folder("feature_extractor"))
        return ImageEncoder(processor, module.requires_grad_(False).eval())

    # encoders

    def encode_video(self, vae: Any, frames: Tensor) -> dict[str, Tensor]:
        """[F, H, W, 3] uint8 -> {"latents": [32, T, h, w] float32}, posterior mode, un-normalised."""
        return {"latents": encode_frames(vae, frames)}

    def encode_conditions(
        self, vae: Any, encoder: ImageEncoder | None, pictures: Mapping[str, Tensor], size: tuple[int, int, int]
    ) -> dict[str, Tensor]:
        """{"first_frame": [32, 1, h, w], "seen": [729, 1152]} float32: the picture's latents, un-normalised, and SigLIP's hidden states."""
        import torch
        from PIL import Image

        if encoder is None:
            return {}
        parameter, picture = next(encoder.module.parameters()), pictures["first_frame"]
        pixels = encoder.processor(Image.fromarray(picture.cpu().numpy()), return_tensors="pt").pixel_values
        with torch.no_grad():
            seen = encoder.module(pixels.to(parameter.device, parameter.dtype)).last_hidden_state[0]
        return {"first_frame": encode_frames(vae, picture[None]), "seen": seen.float().cpu()}

    def decode_video(self, vae: Any, latents: Tensor) -> Tensor:
        """Model-space latents [1, 32, T, h, w] -> [F, H, W, 3] uint8 on the CPU."""
        return decode_latents(vae, latents / self.scale)

    def encode_text(self, encoder: TextEncoder, text: str, image: Tensor | None = None) -> dict[str, Tensor]:
        """{"text": [L, 3584], "glyphs": [G, 1472]} float32, see `text.encode_text`."""
        import torch

        with torch.no_grad():
            return texts_of.encode_text(encoder, text)

    # the step

    def normalize(self, latents: Tensor) -> Tensor:
        """Latents times the VAE's scaling factor."""
        return latents * self.scale

    def text_inputs(self, texts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Both embeddings padded to the longest of the captions, each with a mask if one is shorter."""
        return texts_of.text_inputs(texts)

    def denoiser_inputs(self, x: Tensor, sigma: Tensor, text: dict[str, Tensor], given: dict[str, Tensor]) -> dict[str, Any]:
        """Arguments of HunyuanVideo15Transformer3DModel; its timestep is 1000 · sigma.

        To x are appended the picture's latents, zero after the first frame, and a mask that is 1 there; both are zero in
        text-to-video. There the pipeline also gives 729 picture tokens of zeros, which the transformer masks: none do the same.
        """
        import torch

        first, mask = torch.zeros_like(x), torch.zeros_like(x[:, :1])
        seen = x.new_zeros(x.shape[0], 0, self.config["image_embed_dim"])
        if self.spec.conditions:
            first[:, :, :1], mask[:, :, :1], seen = self.normalize(given["first_frame"]), 1, given["seen"]
        return {"hidden_states": torch.cat([x, first, mask], dim=1), "timestep": sigma * 1000, "image_embeds": seen, **text}

    def predict(self, transformer: nn.Module, inputs: ModelInputs) -> Tensor:
        """Velocity predicted; what the transformer norms first is given in its norms' precision, as CPU autocast leaves norms alone."""
        dtype = cast("Any", transformer).image_embedder.norm_in.weight.dtype
        normed = {name: inputs.kwargs[name].to(dtype) for name in ("encoder_hidden_states_2", "image_embeds")}
        inputs = text_mask.told(transformer, replace(inputs, kwargs=inputs.kwargs | normed), TEXTS)
        return super().predict(transformer, inputs)

    def text_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of a long caption without words in quotes."""
        length = min(self.spec.text_length, 256)
        return {"text": (length, self.config["text_embed_dim"]), "glyphs": (0, self.config["text_embed_2_dim"])}

    def clip_shapes(self, frames: int, height: int, width: int) -> dict[str, tuple[int, ...]]:
        """With what the image encoder sees of the first frame, for image-to-video."""
        seen = {"seen": (729, self.config["image_embed_dim"])} if self.spec.conditions else {}
        return {**super().clip_shapes(frames, height, width), **seen}

    # LoRA

    @property
    def keys(self) -> KeyMap:
        """Names of the original release."""
        return keys.TRANSFORMER

    def write_comfy_files(self, transformer: Path, vae: Path) -> None:
        """Two .safetensors files in the names of the original release; ComfyUI's loader expects heads of 128 channels."""
        write_comfy_files(self.files, transformer, vae)
