"""Wan 2.1 and 2.2 as a ModelFamily. Target, timesteps and text follow diffusers' WanPipeline and WanImageToVideoPipeline."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import Problem, UserError
from ..base import FamilySpec, FrameRule, ImageEncoder, ModelFamily, TextEncoder, adapter_presets, constant
from ..files import ModelFiles, missing_parts
from ..key_map import KeyMap
from ..pixels import decode_latents, encode_clip
from ..text_encoders import load_encoder
from . import conditions, keys
from .comfy_files import write_comfy_files
from .single_files import LAYOUT
from .variants import find_variant, goal_values

if TYPE_CHECKING:
    import torch
    from diffusers import ModelMixin
    from torch import Tensor, nn

IMAGE_TOKENS = 257  # of CLIP ViT-H: a class and 16 x 16 patches
MAX_TEXT_LENGTH = 512  # WanPipeline's max_sequence_length; with an image embedding before the text, diffusers takes no other
ATTENTION = r"blocks\.\d+\.attn[12]\.(to_q|to_k|to_v|to_out\.0|add_k_proj|add_v_proj)"
FEED_FORWARD = r"blocks\.\d+\.ffn\.net\.(0\.proj|2)"


class Wan(ModelFamily):
    """Text-to-video, image-to-video, first and last frame, and both in one; 2.2 with two experts.

    Beside the latents, `given` holds "frames" [B, C, T, h, w], latents of a clip that shows only the given frames,
    "seen" [B, pictures, tokens, D], the image embedding of those, or "first_frame" [B, C, 1, h, w]; none is normalised.
    """

    layout = LAYOUT

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        transformer, tokenizer, scheduler, vae = map(files.config, ("transformer", "tokenizer", "scheduler", "vae"))
        self.config = transformer
        self.latents_mean: list[float] = vae.get("latents_mean", [])
        self.latents_std: list[float] = vae.get("latents_std", [])
        shift = float(scheduler.get("flow_shift") or scheduler.get("shift") or 3.0)
        channels, stride = vae.get("z_dim", 16), (vae.get("scale_factor_temporal", 4), vae.get("scale_factor_spatial", 8))
        self.patch: list[int] = transformer.get("patch_size", [1, 2, 2])
        self.variant = variant = find_variant(files, shift, channels, stride[0])
        text_length = MAX_TEXT_LENGTH if variant.sees_pictures else int(tokenizer.get("model_max_length", MAX_TEXT_LENGTH))
        self.spec = FamilySpec(
            family="wan",
            variant=variant.name,
            frame_rule=FrameRule(stride[0], 1),
            size_multiple=stride[1] * self.patch[1],
            fps=variant.fps,
            latent_channels=channels,
            latent_stride=(stride[0], stride[1], stride[1]),
            text_length=min(MAX_TEXT_LENGTH, text_length),
            train_shift=shift,
            sample_shift=shift,
            guidance=variant.guidance,
            default_bucket=variant.bucket,
            conditions=variant.conditions,
            required=variant.required,
            pictures_as_clips=variant.kind in ("i2v", "flf2v"),
            image_encoder=variant.sees_pictures,
            experts=variant.experts,
            step_distilled=variant.step_distilled,
            adapter_targets=adapter_presets(ATTENTION, FEED_FORWARD),
            text_width=transformer.get("text_dim", 4096),
            goals=goal_values(shift, len(variant.experts)),
        )

    # files

    @classmethod
    def recognises(cls, files: ModelFiles) -> bool:
        """True for any Wan transformer; those that cannot be trained are refused by name."""
        name = str(files.config("transformer").get("_class_name"))
        return name.startswith("Wan") and name.endswith("Transformer3DModel")

    def check_files(self) -> None:
        """Raises UserError for missing parts and for variants that are not known here."""
        seen = (("image_encoder",), ("image_processor",)) if self.spec.image_encoder else ((), ())
        parts = [expert.part for expert in self.spec.experts]
        problems = missing_parts(self.files, (*parts, "vae", "text_encoder", *seen[0]), ("tokenizer", *seen[1]))
        problems += self.variant.problems
        channels = self.spec.latent_channels
        if self.files.config("vae") and {len(self.latents_mean), len(self.latents_std)} != {channels}:
            found = f"latents_mean and latents_std do not name {channels} channels."
            problems.append(Problem(f"{self.files.name}, vae", found, "Download this part of the model again."))
        if problems:
            raise UserError(problems)

    @property
    def transformer_class(self) -> type[ModelMixin]:
        """WanTransformer3DModel."""
        from diffusers import WanTransformer3DModel

        return WanTransformer3DModel

    def weight_classes(self) -> dict[str, type[nn.Module]]:
        """The transformers', the VAE's and the encoders'."""
        from diffusers import AutoencoderKLWan
        from transformers import CLIPVisionModel, UMT5EncoderModel

        return {**super().weight_classes(), "vae": AutoencoderKLWan, "text_encoder": UMT5EncoderModel, "image_encoder": CLIPVisionModel}

    def load_vae(self) -> nn.Module:
        """AutoencoderKLWan on the CPU."""
        from diffusers import AutoencoderKLWan

        return self.files.load("vae", AutoencoderKLWan, self.vae_dtype).requires_grad_(False).eval()

    def load_text_encoder(self, dtype: torch.dtype) -> TextEncoder:
        """Tokenizer and UMT5EncoderModel on the CPU."""
        from transformers import UMT5EncoderModel

        return load_encoder(self.files, UMT5EncoderModel, dtype)

    def load_image_encoder(self, dtype: torch.dtype) -> ImageEncoder:
        """CLIPImageProcessor and CLIPVisionModel on the CPU."""
        from transformers import CLIPImageProcessor, CLIPVisionModel

        module = self.files.load("image_encoder", CLIPVisionModel, dtype)
        processor = CLIPImageProcessor.from_pretrained(self.files.folder("image_processor"))
        return ImageEncoder(processor, module.requires_grad_(False).eval())

    # encoders

    def encode_video(self, vae: Any, frames: Tensor) -> dict[str, Tensor]:
        """[F, H, W, 3] uint8 -> {"latents": [C, T, h, w] float32}, posterior mode, un-normalised."""
        return {"latents": encode_clip(vae, frames / 127.5 - 1)}

    def encode_conditions(
        self, vae: Any, encoder: ImageEncoder | None, pictures: Mapping[str, Tensor], size: tuple[int, int, int]
    ) -> dict[str, Tensor]:
        """{"first_frame"}, or {"frames"} and with an image encoder {"seen"}; empty without pictures."""
        import torch

        if not pictures:
            return {}
        first, last = pictures["first_frame"], pictures.get("last_frame")
        if self.variant.kind == "ti2v":
            return {"first_frame": encode_clip(vae, conditions.clip_of(1, first, None))}
        given = {"frames": encode_clip(vae, conditions.clip_of(size[0], first, last))}
        if encoder:
            with torch.no_grad():
                given["seen"] = conditions.seen(encoder, [first] if last is None else [first, last]).cpu()
        return given

    def decode_video(self, vae: Any, latents: Tensor) -> Tensor:
        """Model-space latents [1, C, T, h, w] -> [F, H, W, 3] uint8 on the CPU."""
        mean, std = self._latent_statistics(latents)
        return decode_latents(vae, latents * std + mean)

    def encode_text(self, encoder: TextEncoder, text: str, image: Tensor | None = None) -> dict[str, Tensor]:
        """{"text": [L, D] float32}, L tokens of the cleaned caption."""
        import torch

        cleaned = " ".join(html.unescape(html.unescape(text)).split())  # the pipeline's prompt_clean
        tokens = encoder.tokenizer(cleaned, truncation=True, max_length=self.spec.text_length, return_tensors="pt")
        if tokens.input_ids.shape[1] == self.spec.text_length and len(encoder.tokenizer(cleaned).input_ids) > self.spec.text_length:
            encoder.truncated.append(text)
        device = next(encoder.module.parameters()).device
        with torch.no_grad():
            hidden = encoder.module(tokens.input_ids.to(device), tokens.attention_mask.to(device)).last_hidden_state
        return {"text": hidden[0].float().cpu()}

    # the step

    def normalize(self, latents: Tensor) -> Tensor:
        """(latents - mean) / deviation per channel, constants of the VAE's configuration."""
        mean, std = self._latent_statistics(latents)
        return (latents - mean) / std

    def _latent_statistics(self, like: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = (constant(values, like).view(1, -1, 1, 1, 1) for values in (self.latents_mean, self.latents_std))
        return mean, std

    def text_inputs(self, texts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Zero-padded to the text length, as the pipeline does: {"encoder_hidden_states": [B, L, D]}."""
        import torch
        from torch.nn.functional import pad

        length = self.spec.text_length
        return {"encoder_hidden_states": torch.stack([pad(t["text"], (0, 0, 0, length - len(t["text"]))) for t in texts])}

    def denoiser_inputs(self, x: Tensor, sigma: Tensor, text: dict[str, Tensor], given: dict[str, Tensor]) -> dict[str, Any]:
        """Arguments of WanTransformer3DModel; its timestep is 1000 · sigma, for text-and-image-to-video one for each token."""
        import torch

        inputs = {"hidden_states": x, "timestep": sigma * 1000, **text}
        if "frames" in given:
            mask = conditions.frame_mask(x, self.spec.latent_stride[0], last="last_frame" in self.spec.conditions)
            inputs["hidden_states"] = torch.cat([x, mask, self.normalize(given["frames"])], dim=1)
        if "seen" in given:
            inputs["encoder_hidden_states_image"] = given["seen"].flatten(0, 1)
        if self.variant.kind == "ti2v":
            inputs["timestep"] = conditions.token_times(sigma * 1000, x.shape[2:], self.patch, self._begins(x, given))
        return inputs

    def conditioned(self, x: Tensor, given: dict[str, Tensor]) -> Tensor:
        """X with the clean first latent frame put in place, for those examples that begin with one."""
        import torch

        begins = self._begins(x, given)
        if begins is None:
            return x
        first = torch.where(begins.view(-1, 1, 1, 1, 1), self.normalize(given["first_frame"]), x[:, :, :1])
        return torch.cat([first, x[:, :, 1:]], dim=2)

    def loss_mask(self, x: Tensor, given: dict[str, Tensor]) -> Tensor | None:
        """0 in a given first latent frame: [B, 1, T, 1, 1]."""
        begins = self._begins(x, given)
        if begins is None:
            return None
        mask = x.new_ones((len(x), 1, x.shape[2], 1, 1))
        mask[:, 0, 0, 0, 0] = (~begins).to(mask.dtype)
        return mask

    def _begins(self, x: Tensor, given: dict[str, Tensor]) -> Tensor | None:
        """Which examples [B] begin with a clean first frame; None if no picture is given."""
        import torch

        if "first_frame" not in given:
            return None
        return given.get("has_first_frame", torch.ones(len(x), dtype=torch.bool, device=x.device))

    def clip_shapes(self, frames: int, height: int, width: int) -> dict[str, tuple[int, ...]]:
        """With a clip of the given frames beside the latents, and what the image encoder sees of each picture."""
        shapes = super().clip_shapes(frames, height, width)
        if self.variant.kind == "ti2v" or not self.spec.conditions:
            return shapes
        pictures, positions = len(self.spec.conditions), self.config.get("pos_embed_seq_len")  # of all pictures' tokens, if they have any
        tokens = positions // pictures if positions else IMAGE_TOKENS
        seen = {"seen": (pictures, tokens, self.config.get("image_dim") or 1280)} if self.spec.image_encoder else {}
        return {"latents": shapes["latents"], "frames": shapes["latents"], **seen}

    # LoRA

    @property
    def keys(self) -> KeyMap:
        """Names of the original release."""
        return keys.TRANSFORMER

    def write_comfy_files(self, transformer: Path, vae: Path) -> None:
        """Two .safetensors files in the names of the original release; of two experts the first."""
        write_comfy_files(self.files, transformer, vae)
