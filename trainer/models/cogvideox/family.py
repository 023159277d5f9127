"""CogVideoX as a ModelFamily. Inputs, latents and text follow diffusers' CogVideoXPipeline and CogVideoXImageToVideoPipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import Problem, UserError
from ..base import ImageEncoder, ModelFamily, TextEncoder, kept
from ..files import ModelFiles, missing_parts
from ..key_map import KeyMap
from ..pixels import decode_latents, encode_frames
from ..text_encoders import load_encoder
from . import keys
from .comfy_files import write_comfy_files
from .positions import rotary_positions
from .schedule import Schedule, scale, velocity
from .single_files import LAYOUT
from .variants import TRANSFORMER, VAE, spec_of, unsupported

if TYPE_CHECKING:
    import torch
    from diffusers import ModelMixin
    from torch import Tensor, nn

OFFSET = 2.0  # CogVideoXImageToVideoPipeline's value of the offset embedding


class CogVideoX(ModelFamily):
    """A model of CogVideoX 2b, 5b or 1.5-5b, from text or from a first frame.

    Clips are of 8n+1 frames, as its VAE decodes odd numbers of latent frames rightly. 1.5 takes them in pairs: what it
    sees has one frame in front that is dropped before decoding. In training that is a copy of the first, as the authors
    make it; in sampling it is drawn along.
    """

    layout = LAYOUT

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        self.config, self.vae_config = TRANSFORMER | files.config("transformer"), VAE | files.config("vae")
        self.spec = spec_of(self.config, self.vae_config)

    # files

    @classmethod
    def recognises(cls, files: ModelFiles) -> bool:
        """True for a model whose transformer is a CogVideoXTransformer3DModel."""
        return files.config("transformer").get("_class_name") == "CogVideoXTransformer3DModel"

    def check_files(self) -> None:
        """Raises UserError for missing parts and for variants that are neither text-to-video nor image-to-video."""
        problems = missing_parts(self.files, ("transformer", "vae", "text_encoder"), ("tokenizer", "scheduler"))
        if found := unsupported(self.files, self.config, self.vae_config):
            cure = "Use CogVideoX 2b, 5b or 1.5-5b, T2V or I2V; other variants are not supported."
            problems.append(Problem(self.files.name, f"is no CogVideoX from text or a first frame: {found}.", cure))
        if problems:
            raise UserError(problems)

    @property
    def transformer_class(self) -> type[ModelMixin]:
        """CogVideoXTransformer3DModel."""
        from diffusers import CogVideoXTransformer3DModel

        return CogVideoXTransformer3DModel

    @cached_property
    def skeleton(self) -> nn.Module:
        """The transformer on the meta device, its table of positions too, which is hundreds of megabytes."""
        return super().skeleton.to("meta")

    def weight_classes(self) -> dict[str, type[nn.Module]]:
        """The transformers', the VAE's and the encoders'."""
        from diffusers import AutoencoderKLCogVideoX
        from transformers import T5EncoderModel

        return {**super().weight_classes(), "vae": AutoencoderKLCogVideoX, "text_encoder": T5EncoderModel}

    def load_vae(self) -> nn.Module:
        """AutoencoderKLCogVideoX on the CPU."""
        from diffusers import AutoencoderKLCogVideoX

        return self.files.load("vae", AutoencoderKLCogVideoX, self.vae_dtype).requires_grad_(False).eval()

    def load_text_encoder(self, dtype: torch.dtype) -> TextEncoder:
        """Tokenizer and T5EncoderModel on the CPU."""
        from transformers import T5EncoderModel

        return load_encoder(self.files, T5EncoderModel, dtype)

    # encoders

    def encode_video(self, vae: Any, frames: Tensor) -> dict[str, Tensor]:
        """[F, H, W, 3] uint8 -> {"latents": [16, T, h, w] float32}, posterior mode, un-normalised."""
        return {"latents": encode_frames(vae, frames)}

    def encode_conditions(
        self, vae: Any, encoder: ImageEncoder | None, pictures: Mapping[str, Tensor], size: tuple[int, int, int]
    ) -> dict[str, Tensor]:
        """{"first_frame": [16, 1, h, w] float32}, posterior mode of the picture alone, un-normalised."""
        return {name: encode_frames(vae, picture[None]) for name, picture in pictures.items()}

    def decode_video(self, vae: Any, latents: Tensor) -> Tensor:
        """Model-space latents [1, 16, T, h, w] -> [F, H, W, 3] uint8 on the CPU; of an even T the first is dropped."""
        return decode_latents(vae, latents[:, :, (latents.shape[2] + 1) % 2 :] / self.vae_config["scaling_factor"])

    def encode_text(self, encoder: TextEncoder, text: str, image: Tensor | None = None) -> dict[str, Tensor]:
        """{"text": [L, D] float32} with its padding, which neither T5 nor the transformer is told to leave out."""
        import torch

        length = self.spec.text_length
        tokens = encoder.tokenizer(text, padding="max_length", max_length=length, truncation=True, return_tensors="pt").input_ids
        if len(encoder.tokenizer(text).input_ids) > length:
            encoder.truncated.append(text)
        with torch.no_grad():
            hidden = encoder.module(tokens.to(next(encoder.module.parameters()).device))[0]
        return {"text": hidden[0].float().cpu()}

    # the step

    @cached_property
    def schedule(self) -> Schedule:
        """The model's own noise levels."""
        with kept():
            return Schedule(self.files.config("scheduler"))

    def stack(self, encodings: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Encodings as one batch; the latents begin with a copy of the first where the model takes them in pairs."""
        from torch.nn.functional import pad

        batch = super().stack(encodings)
        lacking = -batch["latents"].shape[2] % self.spec.latent_frames_multiple
        return batch | {"latents": pad(batch["latents"], (0, 0, 0, 0, lacking, 0), mode="replicate")}

    def normalize(self, latents: Tensor) -> Tensor:
        """Latents times the VAE's scaling factor."""
        return latents * self.vae_config["scaling_factor"]

    def text_inputs(self, texts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """{"encoder_hidden_states": [B, L, D]}."""
        import torch

        return {"encoder_hidden_states": torch.stack([text["text"] for text in texts])}

    def denoiser_inputs(self, x: Tensor, sigma: Tensor, text: dict[str, Tensor], given: dict[str, Tensor]) -> dict[str, Any]:
        """Arguments of CogVideoXTransformer3DModel, which has frames before channels; its timestep is the one nearest to sigma."""
        import torch
        from einops import rearrange

        hidden = x * scale(sigma)
        if self.spec.conditions:
            hidden = torch.cat([hidden, self._first_frame(given["first_frame"], x)], dim=1)
        hidden, timestep = rearrange(hidden, "b c t h w -> b t c h w"), self.schedule.timestep(sigma)
        arguments: dict[str, Any] = {"hidden_states": hidden, "timestep": timestep, **text}
        if self.config["use_rotary_positional_embeddings"]:
            arguments["image_rotary_emb"] = rotary_positions(self.config, x.shape[1:], x.device)
        if self.config["ofs_embed_dim"]:
            arguments["ofs"] = x.new_full((1,), OFFSET)
        return arguments

    def _first_frame(self, latents: Tensor, x: Tensor) -> Tensor:
        """The picture's latents [B, 16, 1, h, w] in the frames of x, zeros after the first.

        1.5 was trained on them divided by the scaling factor: `invert_scale_latents`.
        """
        from torch.nn.functional import pad

        factor = self.vae_config["scaling_factor"]
        scaled = latents / factor if self.vae_config["invert_scale_latents"] else latents * factor
        return pad(scaled.to(x.dtype), (0, 0, 0, 0, 0, x.shape[2] - 1))

    def velocity(self, output: Any, x: Tensor, sigma: Tensor) -> Tensor:
        """The predicted v [B, T, C, h, w] as noise - x0, [B, C, T, h, w]."""
        from einops import rearrange

        return velocity(rearrange(output[0], "b t c h w -> b c t h w").to(x.dtype), x, sigma)

    def noise_level(self, time: Tensor) -> Tensor:
        """Sigma of a timestep of the model's schedule, time 1 being its last."""
        return self.schedule.sigma(time)

    def loss_weight(self, sigma: Tensor) -> Tensor:
        """The weight that makes the velocity's squared error that of v.

        The authors' loss is the same: 1 / (1 - alpha_bar) times the squared error of x0 (`train_cogvideox_lora.py`).
        """
        return (1 - sigma).square() + sigma.square()

    # LoRA

    @property
    def keys(self) -> KeyMap:
        """Names of ComfyUI's class."""
        return keys.TRANSFORMER

    def write_comfy_files(self, transformer: Path, vae: Path) -> None:
        """Two .safetensors files; the VAE's names are diffusers' own."""
        write_comfy_files(self.files, transformer, vae)
