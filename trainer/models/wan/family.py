"""Wan 2.1 text-to-video as a ModelFamily. Target, timesteps and text follow diffusers' WanPipeline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import Problem, UserError
from ..base import FamilySpec, FrameRule, ModelFamily, TextEncoder
from ..files import ModelFiles, missing_parts
from ..key_map import KeyMap
from . import keys
from .comfy_files import write_comfy_files
from .single_files import LAYOUT

if TYPE_CHECKING:
    import torch
    from diffusers import ModelMixin
    from torch import Tensor, nn

VARIANTS = {  # (layers, width) -> name, default frames x height x width, guidance
    (30, 1536): ("t2v-1.3b", (81, 480, 832), 5.0),
    (40, 5120): ("t2v-14b", (81, 480, 832), 5.0),
}
SMALL = ("t2v-small", (17, 64, 64), 2.0)  # any other size: the shipped demo model and test models
MAX_TEXT_LENGTH = 512  # WanPipeline's max_sequence_length
ATTENTION = r"blocks\.\d+\.attn[12]\.(to_q|to_k|to_v|to_out\.0)"
FEED_FORWARD = r"blocks\.\d+\.ffn\.net\.(0\.proj|2)"


class Wan(ModelFamily):
    """Wan 2.1 text-to-video."""

    layout = LAYOUT

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        transformer, tokenizer, scheduler, vae = map(files.config, ("transformer", "tokenizer", "scheduler", "vae"))
        width = transformer.get("num_attention_heads", 40) * transformer.get("attention_head_dim", 128)
        variant, bucket, guidance = VARIANTS.get((transformer.get("num_layers", 40), width), SMALL)
        shift = float(scheduler.get("flow_shift") or scheduler.get("shift") or 3.0)
        self.config = transformer
        self.latents_mean: list[float] = vae.get("latents_mean", [])
        self.latents_std: list[float] = vae.get("latents_std", [])
        self.spec = FamilySpec(
            family="wan",
            variant=variant,
            frame_rule=FrameRule(4, 1),
            size_multiple=16,
            fps=16.0,
            latent_channels=16,
            latent_stride=(4, 8, 8),
            text_length=min(MAX_TEXT_LENGTH, int(tokenizer.get("model_max_length", MAX_TEXT_LENGTH))),
            train_shift=shift,
            sample_shift=shift,
            guidance=guidance,
            default_bucket=bucket,
            adapter_targets={"all": f"{ATTENTION}|{FEED_FORWARD}", "attention": ATTENTION, "feed-forward": FEED_FORWARD},
            text_width=transformer.get("text_dim", 4096),
        )

    # files

    @classmethod
    def recognises(cls, files: ModelFiles) -> bool:
        """True for a model whose transformer is a WanTransformer3DModel."""
        return files.config("transformer").get("_class_name") == "WanTransformer3DModel"

    def check_files(self) -> None:
        """Raises UserError for missing parts and for variants that are not text-to-video."""
        problems = missing_parts(self.files, ("transformer", "vae", "text_encoder"), ("tokenizer",))
        channels = self.config.get("in_channels", 16)
        if self.config.get("image_dim") or channels != 16 or self.files.config("transformer_2"):
            found = (
                "two experts" if self.files.config("transformer_2") else f"{channels} input channels" if channels != 16 else "image input"
            )
            problems.append(
                Problem(self.files.name, f"is not Wan 2.1 text-to-video: it has {found}.", "Other variants are not supported yet.")
            )
        if problems:
            raise UserError(problems)

    @property
    def transformer_class(self) -> type[ModelMixin]:
        """WanTransformer3DModel."""
        from diffusers import WanTransformer3DModel

        return WanTransformer3DModel

    def load_vae(self) -> nn.Module:
        """AutoencoderKLWan on the CPU."""
        from diffusers import AutoencoderKLWan

        return self.files.load("vae", AutoencoderKLWan, self.vae_dtype).requires_grad_(False).eval()

    def load_text_encoder(self, dtype: torch.dtype) -> TextEncoder:
        """Tokenizer and UMT5EncoderModel on the CPU."""
        from transformers import AutoTokenizer, UMT5EncoderModel

        module = self.files.load("text_encoder", UMT5EncoderModel, dtype)
        tokenizer = AutoTokenizer.from_pretrained(self.files.folder("tokenizer"), trust_remote_code=False)
        return TextEncoder(tokenizer, module.requires_grad_(False).eval())

    # encoders

    def encode_video(self, vae: Any, frames: Tensor) -> dict[str, Tensor]:
        """[F, H, W, 3] uint8 -> {"latents": [16, T, h, w] float32}, posterior mode, un-normalised."""
        import torch
        from einops import rearrange

        parameter = next(vae.parameters())
        video = rearrange(frames, "f h w c -> 1 c f h w").to(parameter.device, parameter.dtype) / 127.5 - 1
        with torch.no_grad():
            latents = vae.encode(video).latent_dist.mode()
        return {"latents": latents[0].float().cpu()}

    def decode_video(self, vae: Any, latents: Tensor) -> Tensor:
        """Model-space latents [1, 16, T, h, w] -> [F, H, W, 3] uint8 on the CPU."""
        import torch
        from einops import rearrange

        parameter = next(vae.parameters())
        mean, std = self._latent_statistics(latents)
        with torch.no_grad():
            video = vae.decode((latents * std + mean).to(parameter.device, parameter.dtype), return_dict=False)[0]
        video = ((video.float() + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
        return rearrange(video, "1 c f h w -> f h w c").cpu()

    def encode_text(self, encoder: TextEncoder, text: str, image: Tensor | None = None) -> dict[str, Tensor]:
        """{"text": [L, D] float32}, L tokens of the cleaned caption."""
        import torch

        cleaned = " ".join(text.split())
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
        mean, std = (like.new_tensor(values).view(1, -1, 1, 1, 1) for values in (self.latents_mean, self.latents_std))
        return mean, std

    def text_inputs(self, texts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Zero-padded to the text length, as the pipeline does: {"encoder_hidden_states": [B, L, D]}."""
        import torch
        from torch.nn.functional import pad

        length = self.spec.text_length
        return {"encoder_hidden_states": torch.stack([pad(t["text"], (0, 0, 0, length - len(t["text"]))) for t in texts])}

    def denoiser_inputs(self, x: Tensor, sigma: Tensor, text: dict[str, Tensor], given: dict[str, Tensor]) -> dict[str, Any]:
        """Arguments of WanTransformer3DModel; its timestep is 1000 · sigma."""
        return {"hidden_states": x, "timestep": sigma * 1000, **text}

    # LoRA

    @property
    def keys(self) -> KeyMap:
        """Names of the original release."""
        return keys.TRANSFORMER

    def write_comfy_files(self, transformer: Path, vae: Path) -> None:
        """Two .safetensors files in the names of the original release."""
        write_comfy_files(self.files.folder("transformer"), self.files.folder("vae"), transformer, vae)
