"""FramePack as a ModelFamily. Target, timesteps and what is fed follow diffusers' HunyuanVideoFramepackPipeline."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import Problem, UserError
from .. import text_mask
from ..base import Denoise, FamilySpec, FrameRule, ImageEncoder, ModelFamily, ModelInputs, TextEncoder
from ..files import ModelFiles, missing_parts
from ..hunyuan_video import text as llama_text
from ..hunyuan_video.family import ADAPTER_TARGETS
from ..key_map import KeyMap
from ..part_files import folder_tensors, write_tensors
from ..pixels import encode_frames, to_frames
from ..shapes import with_config
from . import keys
from .decoding import decode
from .packing import WINDOW, made_before, order_of, section_at, section_count, split_history
from .single_files import LAYOUT

if TYPE_CHECKING:
    import torch
    from diffusers import ModelMixin
    from torch import Tensor, nn

WEIGHTS = ("transformer", "vae", "text_encoder", "text_encoder_2", "image_encoder")
SMALL = ("tokenizer", "tokenizer_2", "feature_extractor")
CLASSES = ("HunyuanVideoFramepackTransformer3DModel", "HunyuanVideoTransformer3DModelPacked")  # diffusers' name, and the release's
FORWARD_NAME = re.compile(r"(?<![a-z0-9])(framepack)?f1(?![a-z0-9])", re.IGNORECASE)
LARGEST_SHIFT = 7.0


class FramePack(ModelFamily):
    """FramePack of either order of sections: backward from the end of the video, or forward as F1."""

    layout = LAYOUT

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        self.config, self.schedule = files.config("transformer"), files.config("scheduler")
        self.scale = float(files.config("vae").get("scaling_factor", 0.476986))
        distilled = bool(self.config.get("guidance_embeds", True))
        self.spec = FamilySpec(
            family="framepack",
            variant="i2v",
            frame_rule=FrameRule(4 * WINDOW, 1, shortest=4 * WINDOW + 1),
            size_multiple=16,
            fps=30.0,
            latent_channels=16,
            latent_stride=(4, 8, 8),
            text_length=llama_text.TEXT_LENGTH,
            train_shift=3.0,
            sample_shift=float(self.schedule.get("shift") or LARGEST_SHIFT),
            guidance=6.0 if distilled else 1.0,
            default_bucket=(145, 640, 640),
            conditions=("first_frame",),
            required=("first_frame",),
            image_encoder=True,
            guidance_input=1.0 if distilled else None,
            adapter_targets=ADAPTER_TARGETS,
            folds_alpha=True,
            section_frames=4 * WINDOW,
            lora_user="ComfyUI-FramePackWrapper's Select Lora node",
        )
        self.choose_order("auto")

    # files

    @classmethod
    def recognises(cls, files: ModelFiles) -> bool:
        """True for a model whose transformer packs a history."""
        return files.config("transformer").get("_class_name") in CLASSES

    def check_files(self) -> None:
        """Raises UserError for missing parts, and for a transformer that cannot see the first frame or the history."""
        problems = missing_parts(self.files, WEIGHTS, SMALL)
        for name, meaning in (("has_image_proj", "the first frame"), ("has_clean_x_embedder", "the sections made before")):
            if not self.config.get(name):
                found = f"cannot be trained: it does not see {meaning} ({name} is not set)."
                problems.append(Problem(f"{self.files.name}, transformer", found, "Use that of FramePackI2V_HY or FramePack_F1_I2V_HY."))
        if problems:
            raise UserError(problems)

    def choose_order(self, order: str) -> None:
        """Backward or forward; "auto" is forward if the model's name says F1, as nothing in its weights does.

        Only a video that is made backward can be given its last frame.
        """
        names = (Path(self.files.name).name, str(self.config.get("_name_or_path", "")))
        by_name = "forward" if any(map(FORWARD_NAME.search, names)) else "backward"
        super().choose_order(by_name if order == "auto" else order)
        self.spec = replace(self.spec, conditions=("first_frame",) if self.forward else ("first_frame", "last_frame"))

    @property
    def forward(self) -> bool:
        """Whether sections are made from the first to the last."""
        return self.order == "forward"

    @property
    def transformer_class(self) -> type[ModelMixin]:
        """HunyuanVideoFramepackTransformer3DModel."""
        from diffusers import HunyuanVideoFramepackTransformer3DModel

        return HunyuanVideoFramepackTransformer3DModel

    def weight_classes(self) -> dict[str, type[nn.Module]]:
        """The transformers', the VAE's and the encoders'."""
        from diffusers import AutoencoderKLHunyuanVideo
        from transformers import CLIPTextModel, LlamaModel, SiglipVisionModel

        return {
            **super().weight_classes(),
            "vae": AutoencoderKLHunyuanVideo,
            "text_encoder": LlamaModel,
            "text_encoder_2": CLIPTextModel,
            "image_encoder": SiglipVisionModel,
        }

    def prepare_transformer(self, transformer: nn.Module) -> None:
        """Its attention gets a mask only where texts are padded."""
        from ..hunyuan_video.attention import mask_where_padded

        mask_where_padded(transformer)

    def load_vae(self) -> nn.Module:
        """AutoencoderKLHunyuanVideo on the CPU."""
        from diffusers import AutoencoderKLHunyuanVideo

        return self.files.load("vae", AutoencoderKLHunyuanVideo, self.vae_dtype).requires_grad_(False).eval()

    def load_text_encoder(self, dtype: torch.dtype) -> TextEncoder:
        """Llama and CLIP with their tokenizers on the CPU."""
        return llama_text.load_text_encoder(self.files, dtype)

    def load_image_encoder(self, dtype: torch.dtype) -> ImageEncoder:
        """SigLIP and its processor on the CPU."""
        from transformers import SiglipImageProcessor, SiglipVisionModel

        module = self.files.load("image_encoder", SiglipVisionModel, dtype).requires_grad_(False).eval()
        size = module.config.image_size
        processor = SiglipImageProcessor.from_pretrained(self.files.folder("feature_extractor"), size={"height": size, "width": size})
        return ImageEncoder(processor, module)

    # encoders

    def encode_video(self, vae: Any, frames: Tensor) -> dict[str, Tensor]:
        """[F, H, W, 3] uint8 -> {"latents": [16, T, h, w] float32}, posterior mode, not scaled."""
        return {"latents": encode_frames(vae, frames)}

    def encode_conditions(
        self, vae: Any, encoder: ImageEncoder | None, pictures: Mapping[str, Tensor], size: tuple[int, int, int]
    ) -> dict[str, Tensor]:
        """{"start": [16, 1, h, w] in model space, "image": [729, 1152]} of the first frame; "end" of the last, like "start".

        As in the pipeline, the start is the latent of the picture alone: the first of a clip's would know what follows.
        """
        import torch

        assert encoder is not None
        parameter = next(encoder.module.parameters())
        picture = pictures["first_frame"].permute(2, 0, 1).float() / 255
        pixels = encoder.processor(images=picture, do_rescale=False, return_tensors="pt")["pixel_values"]
        with torch.no_grad():
            image = encoder.module(pixels.to(parameter.device, parameter.dtype)).last_hidden_state
        frames = {"start": pictures["first_frame"]} | ({"end": pictures["last_frame"]} if "last_frame" in pictures else {})
        latents = {name: self.normalize(encode_frames(vae, frame[None])) for name, frame in frames.items()}
        return {"image": image[0].float().cpu(), **latents}

    def decode_video(self, vae: Any, latents: Tensor) -> Tensor:
        """Model-space latents [1, 16, T, h, w] -> [F, H, W, 3] uint8 on the CPU."""
        return to_frames(decode(vae, latents / self.scale, self.forward))

    def encode_text(self, encoder: TextEncoder, text: str, image: Tensor | None = None) -> dict[str, Tensor]:
        """{"text": [L, 4096], "pooled": [768]} float32."""
        import torch

        with torch.no_grad():
            return llama_text.encode_text(encoder, text)

    # the step

    def normalize(self, latents: Tensor) -> Tensor:
        """Latents times the VAE's scaling factor."""
        return latents * self.scale

    def text_inputs(self, texts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """{"encoder_hidden_states", "pooled_projections"}, and "encoder_attention_mask" where texts are padded."""
        return llama_text.text_inputs(texts)

    def denoiser_inputs(self, x: Tensor, sigma: Tensor, text: dict[str, Tensor], given: dict[str, Tensor]) -> dict[str, Any]:
        """Arguments for one section x: its timestep is 1000 · sigma, its guidance 1000 times what is given.

        The batch shares one row of indices, which all its examples have.
        """
        import torch

        history = given["history"]
        if "drift" in given:
            share = (given["drift_level"].view(-1, 1) * given["made"])[:, None, :, None, None]
            history = history + share * (given["drift"] - history)
        near, halved, quartered = split_history(history, self.forward)
        guidance = {} if self.spec.guidance_input is None else {"guidance": given["guidance"] * 1000}
        return {
            "hidden_states": x, "timestep": sigma * 1000, **text, **guidance, "image_embeds": given["image"],
            "latents_clean": torch.cat([given["start"], near], dim=2), "latents_history_2x": halved, "latents_history_4x": quartered,
            "indices_latents": given["section_indices"][0], "indices_latents_clean": given["clean_indices"][0],
            "indices_latents_history_2x": given["halved_indices"][0], "indices_latents_history_4x": given["quartered_indices"][0],
        }  # fmt: skip

    def predict(self, transformer: nn.Module, inputs: ModelInputs) -> Tensor:
        """Velocity predicted; the transformer is told whether texts are padded.

        It reads the mask, whose ones lie on the host, so that it need not wait for the device.
        """
        return super().predict(transformer, text_mask.told(transformer, inputs, device="cpu"))

    def shift(self, latent_shape: Sequence[int], sampling: bool) -> float:
        """In sampling the pipeline's: by the tokens of a section if the scheduler shifts by size, else the scheduler's own."""
        if not sampling or not self.schedule.get("use_dynamic_shifting"):
            return super().shift(latent_shape, sampling)
        _, latents, height, width = latent_shape
        tokens = min(latents, WINDOW) * height * width / self.config.get("patch_size", 2) ** 2
        few, many = (self.schedule.get(f"{end}_image_seq_len", tokens) for end, tokens in (("base", 256), ("max", 4096)))
        least, most = (self.schedule.get(f"{end}_shift", mu) for end, mu in (("base", 0.5), ("max", 1.15)))
        return min(math.exp(least + (most - least) * (tokens - few) / (many - few)), LARGEST_SHIFT)

    # sections

    def section(self, encoding: dict[str, Tensor], number: int) -> dict[str, Tensor]:
        """Section `number` in time of a clip: its "latents", and what is made before it; a single latent is a section by itself."""
        import torch

        latents, start = encoding["latents"], encoding["start"]
        video = torch.cat([start, self.normalize(latents[:, 1:])], dim=1)
        target = latents[:, section_at(number)] if section_count(latents.shape[1]) else latents
        return {"latents": target, "start": start, "image": encoding["image"], **made_before(video, number, self.forward)}

    def generate(self, denoise: Denoise, noise: Tensor, given: dict[str, Tensor]) -> Tensor:
        """Section after section from its own part of the noise [1, C, T, h, w], behind the start latent; a single latent by itself.

        The last frame, if it is given, stands for what comes after the section that is made first.
        """
        import torch

        sections = section_count(noise.shape[2])
        video = torch.cat([given["start"], torch.zeros_like(noise[:, :, 1:])], dim=2)
        for place, number in enumerate(order_of(sections, self.forward) or [0]):
            before = {name: tensor[None].to(noise.device) for name, tensor in made_before(video[0], number, self.forward).items()}
            if place == 0 and "end" in given:
                before["history"][:, :, :1] = given["end"]
            at = section_at(number) if sections else slice(0, 1)
            video[:, :, at] = denoise(noise[:, :, at], {**given, **before}, number)
        return video

    def text_shapes(self) -> dict[str, tuple[int, ...]]:
        """Llama's states and CLIP's pooled embedding."""
        return {
            "text": (self.spec.text_length, self.config.get("text_embed_dim", 4096)),
            "pooled": (self.config.get("pooled_projection_dim", 768),),
        }

    def clip_shapes(self, frames: int, height: int, width: int) -> dict[str, tuple[int, ...]]:
        """A whole clip's, before it is cut into sections: with the start latent and what the image encoder sees."""
        shapes = super().clip_shapes(frames, height, width)
        return {"latents": shapes["latents"], "start": shapes["first_frame"], "image": (729, self.config.get("image_proj_dim") or 1152)}

    # LoRA

    @property
    def keys(self) -> KeyMap:
        """Names of HunyuanVideo's original release."""
        return keys.LORA

    def write_comfy_files(self, transformer: Path, vae: Path) -> None:
        """Two .safetensors files as ComfyUI-FramePackWrapper and ComfyUI's VAE loader read them: in diffusers' own names."""
        for part, file in (("transformer", transformer), ("vae", vae)):
            write_tensors(folder_tensors(self.files.folder(part)), file, with_config(part, self.files.config(part)))
