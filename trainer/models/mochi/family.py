"""Mochi 1 as a ModelFamily. Inputs, latents, text and sampling follow diffusers' MochiPipeline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from .. import text_mask
from ..base import FamilySpec, FrameRule, ModelFamily, ModelInputs, TextEncoder, adapter_presets, constant
from ..files import ModelFiles, missing_parts
from ..key_map import KeyMap
from ..pixels import decode_latents, encode_frames
from ..text_encoders import load_encoder
from . import keys
from .comfy_files import write_comfy_files
from .single_files import LAYOUT

if TYPE_CHECKING:
    import torch
    from diffusers import ModelMixin
    from torch import Tensor, nn

RELEASED_LAYERS = 48  # other counts are of test models
FEED_FORWARD = r"transformer_blocks\.\d+\.ff(_context)?\.net\.(0\.proj|2)"


def attention(layers: int) -> str:
    """The attention's layers that do something: of the last block's text only keys and values are used."""
    every = r"transformer_blocks\.\d+\.attn1\.(to_q|to_k|to_v|to_out\.0|add_k_proj|add_v_proj|to_add_out)"
    return rf"{every}|transformer_blocks\.(?!{layers - 1}\.)\d+\.attn1\.add_q_proj"


class Mochi(ModelFamily):
    """Mochi 1, from a text.

    The transformer counts time the other way: its timestep is 1000 · (1 - sigma), and it predicts x0 - noise.
    """

    layout = LAYOUT

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        self.config, self.vae_config = files.config("transformer"), files.config("vae")
        layers = self.config.get("num_layers", RELEASED_LAYERS)
        released = layers == RELEASED_LAYERS
        self.spec = FamilySpec(
            family="mochi",
            variant="1-preview" if released else "small",
            frame_rule=FrameRule(6, 1),
            size_multiple=16,
            fps=30.0,
            latent_channels=self.config.get("in_channels", 12),
            latent_stride=(6, 8, 8),
            text_length=self.config.get("max_sequence_length", 256),
            train_shift=1.0,
            sample_shift=1.0,  # on top of `sampling_level`
            guidance=4.5,  # MochiPipeline's
            default_bucket=(37, 480, 848) if released else (7, 32, 32),
            adapter_targets=adapter_presets(attention(layers), FEED_FORWARD),
            text_width=self.config.get("text_embed_dim", 4096),
            diffusers_copy=True,
        )

    # files

    @classmethod
    def recognises(cls, files: ModelFiles) -> bool:
        """True for a model whose transformer is a MochiTransformer3DModel."""
        return files.config("transformer").get("_class_name") == "MochiTransformer3DModel"

    def check_files(self) -> None:
        """Raises UserError for missing parts."""
        problems = missing_parts(self.files, ("transformer", "vae", "text_encoder"), ("tokenizer",))
        if problems:
            raise UserError(problems)

    @property
    def transformer_class(self) -> type[ModelMixin]:
        """MochiTransformer3DModel."""
        from diffusers import MochiTransformer3DModel

        return MochiTransformer3DModel

    def weight_classes(self) -> dict[str, type[nn.Module]]:
        """The transformers', the VAE's and the encoders'."""
        from diffusers import AutoencoderKLMochi
        from transformers import T5EncoderModel

        return {**super().weight_classes(), "vae": AutoencoderKLMochi, "text_encoder": T5EncoderModel}

    def prepare_transformer(self, transformer: nn.Module) -> None:
        """Its attention gets a mask only where texts are padded."""
        from .attention import mask_where_padded

        mask_where_padded(transformer)

    def load_vae(self) -> nn.Module:
        """AutoencoderKLMochi on the CPU."""
        from diffusers import AutoencoderKLMochi

        return self.files.load("vae", AutoencoderKLMochi, self.vae_dtype).requires_grad_(False).eval()

    def load_text_encoder(self, dtype: torch.dtype) -> TextEncoder:
        """Tokenizer and T5EncoderModel on the CPU."""
        from transformers import T5EncoderModel

        return load_encoder(self.files, T5EncoderModel, dtype)

    # encoders

    def encode_video(self, vae: Any, frames: Tensor) -> dict[str, Tensor]:
        """[F, H, W, 3] uint8 -> {"latents": [12, T, h, w] float32}, posterior mode, un-normalised."""
        return {"latents": encode_frames(vae, frames)}

    def decode_video(self, vae: Any, latents: Tensor) -> Tensor:
        """Model-space latents [1, 12, T, h, w] -> [F, H, W, 3] uint8 on the CPU."""
        mean, std = self._latent_statistics(latents)
        return decode_latents(vae, latents * std + mean)

    def encode_text(self, encoder: TextEncoder, text: str, image: Tensor | None = None) -> dict[str, Tensor]:
        """{"text": [L, D] float32} of the caption's L tokens: padding is masked in T5 and in the transformer.

        An empty caption has no tokens where the model says so (`force_zeros_for_empty_prompt`, as the released one does): a row of zeros.
        """
        import torch

        if not text and self.files.config("model_index").get("force_zeros_for_empty_prompt"):
            return {"text": torch.zeros(1, self.spec.text_width)}
        length = self.spec.text_length
        tokens = encoder.tokenizer(text, truncation=True, max_length=length, return_tensors="pt").input_ids
        if len(encoder.tokenizer(text).input_ids) > length:
            encoder.truncated.append(text)
        with torch.no_grad():
            hidden = encoder.module(tokens.to(next(encoder.module.parameters()).device)).last_hidden_state
        return {"text": hidden[0].float().cpu()}

    # the step

    def normalize(self, latents: Tensor) -> Tensor:
        """(latents - mean) · scaling factor / deviation per channel, constants in the VAE's configuration."""
        mean, std = self._latent_statistics(latents)
        return (latents - mean) / std

    def _latent_statistics(self, like: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = (constant(self.vae_config[name], like).view(1, -1, 1, 1, 1) for name in ("latents_mean", "latents_std"))
        return mean, std / self.vae_config.get("scaling_factor", 1.0)

    def text_inputs(self, texts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """{"encoder_hidden_states": [B, L, D]}, L the longest, and "encoder_attention_mask" [B, L] if not all rows are tokens.

        Rows of zeros are none.
        """
        from torch.nn.utils.rnn import pad_sequence

        hidden = pad_sequence([text["text"] for text in texts], batch_first=True)
        mask = hidden.any(-1)
        return {"encoder_hidden_states": hidden, **({} if mask.all() else {text_mask.MASK: mask})}

    def denoiser_inputs(self, x: Tensor, sigma: Tensor, text: dict[str, Tensor], given: dict[str, Tensor]) -> dict[str, Any]:
        """Arguments of MochiTransformer3DModel."""
        return {"hidden_states": x, "timestep": (1 - sigma) * 1000, **text}

    def predict(self, transformer: nn.Module, inputs: ModelInputs) -> Tensor:
        """Velocity predicted; the transformer is told whether texts are padded."""
        return super().predict(transformer, text_mask.told(transformer, inputs))

    def velocity(self, output: Any, x: Tensor, sigma: Tensor) -> Tensor:
        """The predicted x0 - noise, negated."""
        return -output[0]

    def sampling_level(self, time: Tensor) -> Tensor:
        """The pipeline's `linear_quadratic_schedule`, whose first half takes away 2.5 % of the noise.

        With u = 1 - time there is 0.05·u taken away up to u = 1/2, and 3.8·u² - 3.75·u + 0.95 after it: the same as
        the pipeline's for any even number of steps.
        """
        import torch

        u = 1 - time
        return 1 - torch.where(u < 0.5, 0.05 * u, 3.8 * u.square() - 3.75 * u + 0.95)

    # LoRA

    @property
    def keys(self) -> KeyMap:
        """Names of the original release."""
        return keys.transformer(self.config.get("num_layers", RELEASED_LAYERS))

    def write_comfy_files(self, transformer: Path, vae: Path) -> None:
        """Two .safetensors files in the names of the original release."""
        write_comfy_files(self.files, transformer, vae)
