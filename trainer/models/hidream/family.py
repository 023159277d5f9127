"""HiDream-I1 as a ModelFamily. Inputs, latents and text follow diffusers' HiDreamImagePipeline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import Problem, UserError, fail
from ..base import FamilySpec, FrameRule, GoalValues, ModelFamily, TextEncoder, adapter_presets
from ..files import DiffusersFolder, ModelFiles, missing_parts
from ..key_map import KeyMap
from ..pixels import to_frames
from . import keys
from .comfy_files import write_comfy_files
from .experts import make_differentiable
from .single_files import LAYOUT
from .text import MOST_TOKENS, PARTS, encode, load

if TYPE_CHECKING:
    import torch
    from diffusers import ModelMixin
    from torch import Tensor, nn


BLOCK = r"(double|single)_stream_blocks\.\d+\.block"
ATTENTION = rf"{BLOCK}\.attn1\.(to_q|to_k|to_v|to_out)(_t)?"
FEED_FORWARD = rf"{BLOCK}\.(ff_i|ff_t)\.((shared_experts|experts\.\d+)\.)?w[123]"
RELEASED_LAYERS = (16, 32)
MAIN = "i1-full"
SHIFT = 3.0  # of full and fast
# ai-toolkit's example for this model: rank 32, 2e-4, 3000 steps; that they do for either goal is our judgement.
GOALS: dict[str, GoalValues] = dict.fromkeys(("character", "style"), GoalValues(rank=32, learning_rate=2e-4, steps=3000))
FEW_STEPS = ("FlowMatchLCMScheduler", "FlashFlowMatchEulerDiscreteScheduler")  # the schedulers of dev and fast


class HiDream(ModelFamily):
    """HiDream-I1 full, dev or fast, from a text. It makes images: clips are single frames.

    Pictures that are not square are padded to the largest number of patches, as in the pipeline, and have the cost of that.
    """

    layout = LAYOUT

    def __init__(self, files: ModelFiles) -> None:
        super().__init__(files)
        self.config, self.vae_config, scheduler = self.transformer_config, files.config("vae"), files.config("scheduler")
        shift, distilled = scheduler.get("shift", scheduler.get("flow_shift", SHIFT)), scheduler.get("_class_name") in FEW_STEPS
        released = (self.config.get("num_layers", 16), self.config.get("num_single_layers", 32)) == RELEASED_LAYERS
        name = ("dev" if shift > SHIFT else "fast") if distilled else "full"
        self.spec = FamilySpec(
            family="hidream",
            variant=f"i1-{name}" if released else f"small-{name}",
            frame_rule=FrameRule(1, 1, most=1),
            size_multiple=16,
            fps=24.0,  # of clips that it takes its pictures from
            latent_channels=self.config.get("in_channels", 16),
            latent_stride=(1, 8, 8),
            text_length=MOST_TOKENS,
            train_shift=shift,
            sample_shift=shift,
            guidance=1.0 if distilled else 5.0,
            default_bucket=(1, 1024, 1024) if released else (1, 32, 32),
            adapter_targets=adapter_presets(ATTENTION, FEED_FORWARD),
            step_distilled=distilled,
            compiles=False,  # its routing
            goals=GOALS,
            folds_alpha=True,  # diffusers' HiDreamImageLoraLoaderMixin reads ComfyUI's names, and refuses a file with alpha tensors
        )

    # files

    @classmethod
    def recognises(cls, files: ModelFiles) -> bool:
        """True for a model whose transformer is a HiDreamImageTransformer2DModel."""
        return files.config("transformer").get("_class_name") == "HiDreamImageTransformer2DModel"

    @property
    def transformer_config(self) -> dict[str, Any]:
        """Where no model is given the main release's, as the class has no defaults of all values."""
        return self.files.config("transformer") or LAYOUT.config(MAIN, "transformer")

    def check_files(self) -> None:
        """Raises UserError for missing parts, of which Llama is published apart, for other text encoders and models that edit pictures."""
        problems = missing_parts(
            self.files,
            ("transformer", "vae", *(f"text_encoder{number}" for name, number in PARTS.items() if name != "llama")),
            tuple(f"tokenizer{number}" for name, number in PARTS.items() if name != "llama"),
        )
        if lacking := missing_parts(self.files, ("text_encoder_4",), ("tokenizer_4",)):
            cure = "Put Llama-3.1-8B-Instruct into its folder text_encoder_4, the tokenizer's files into tokenizer_4."
            apart = isinstance(self.files, DiffusersFolder)
            problems += [Problem(problem.where, problem.found, cure if apart else problem.cure) for problem in lacking]
        problems += self._other_encoders()
        pipeline = self.files.config("model_index").get("_class_name", "HiDreamImagePipeline")
        if pipeline != "HiDreamImagePipeline":
            cure = "Use HiDream-I1 full, dev or fast; models that edit pictures are not supported."
            problems.append(Problem(self.files.name, f"is made for {pipeline}.", cure))
        if problems:
            raise UserError(problems)

    def _other_encoders(self) -> list[Problem]:
        """CLIP models that read fewer tokens than they are given, and encoders whose embeddings the transformer does not take."""
        parts = [self.files.config(f"text_encoder{number}") for number in PARTS.values()]
        if not all((self.files.config("transformer"), *parts)):
            return []
        cure, problems = (
            "Choose this model's own text encoders: clip_l_hidream, clip_g_hidream, a T5 XXL and a Llama 3.1 8B.",
            list[Problem](),
        )
        for number, config in enumerate(parts[:2], 1):
            if (reads := int(config.get("max_position_embeddings", 77))) < MOST_TOKENS:
                found = f"CLIP model {number} reads {reads} tokens, and this model gives it {MOST_TOKENS}."
                problems.append(Problem(f"{self.files.name}, text encoders", found, cure))
        first, second, t5, llama = parts
        pooled = int(first["projection_dim"]) + int(second["projection_dim"])
        made, taken = [pooled, t5["d_model"], llama["hidden_size"]], [self.config["text_emb_dim"], *self.config["caption_channels"]]
        if made != taken:
            found = "both CLIP models together, T5 and Llama have {}, {} and {} channels, and the transformer takes {}, {} and {}."
            problems.append(Problem(f"{self.files.name}, text encoders", found.format(*made, *taken), cure))
        return problems

    @property
    def transformer_class(self) -> type[ModelMixin]:
        """HiDreamImageTransformer2DModel."""
        from diffusers import HiDreamImageTransformer2DModel

        return HiDreamImageTransformer2DModel

    def prepare_transformer(self, transformer: nn.Module) -> None:
        """Its experts get gradients."""
        make_differentiable(transformer)

    def weight_classes(self) -> dict[str, type[nn.Module]]:
        """The transformers', the VAE's and the encoders'."""
        from diffusers import AutoencoderKL
        from transformers import CLIPTextModelWithProjection, LlamaModel, T5EncoderModel

        return {
            **super().weight_classes(),
            "vae": AutoencoderKL,
            "text_encoder": CLIPTextModelWithProjection,
            "text_encoder_2": CLIPTextModelWithProjection,
            "text_encoder_3": T5EncoderModel,
            "text_encoder_4": LlamaModel,
        }

    def load_vae(self) -> nn.Module:
        """AutoencoderKL on the CPU."""
        from diffusers import AutoencoderKL

        return self.files.load("vae", AutoencoderKL, self.vae_dtype).requires_grad_(False).eval()

    def load_text_encoder(self, dtype: torch.dtype) -> TextEncoder:
        """Both CLIP, T5 and Llama with their tokenizers on the CPU."""
        return load(self.files, dtype)

    # encoders

    def encode_video(self, vae: Any, frames: Tensor) -> dict[str, Tensor]:
        """[1, H, W, 3] uint8 -> {"latents": [16, 1, h, w] float32}, posterior mode, un-normalised."""
        import torch
        from einops import rearrange

        parameter = next(vae.parameters())
        picture = rearrange(frames, "1 h w c -> 1 c h w").to(parameter.device, parameter.dtype) / 127.5 - 1
        with torch.no_grad():
            latents = vae.encode(picture).latent_dist.mode()
        self._check_size(latents.shape)
        return {"latents": rearrange(latents, "1 c h w -> c 1 h w").float().cpu()}

    def decode_video(self, vae: Any, latents: Tensor) -> Tensor:
        """Model-space latents [1, 16, 1, h, w] -> [1, H, W, 3] uint8 on the CPU."""
        import torch

        parameter = next(vae.parameters())
        latents = latents[:, :, 0] / self.vae_config["scaling_factor"] + self.vae_config["shift_factor"]
        with torch.no_grad():
            picture = vae.decode(latents.to(parameter.device, parameter.dtype), return_dict=False)[0]
        return to_frames(picture.unsqueeze(2))

    def encode_text(self, encoder: TextEncoder, text: str, image: Tensor | None = None) -> dict[str, Tensor]:
        """{"pooled": [2048], "t5": [128, 4096], "llama": [32, 128, 4096]}, in the precision of the encoders."""
        return encode(encoder, text)

    # the step

    def normalize(self, latents: Tensor) -> Tensor:
        """(latents - shift) · scale, constants in the VAE's configuration."""
        return (latents - self.vae_config["shift_factor"]) * self.vae_config["scaling_factor"]

    def text_inputs(self, texts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """{"pooled_embeds": [B, D], "encoder_hidden_states_t5": [B, L, D], "encoder_hidden_states_llama3": [B, layers, L, D]}."""
        import torch

        by_name = {name: [found[name].float() for found in texts] for name in ("pooled", "t5", "llama")}
        return {
            "pooled_embeds": torch.stack(by_name["pooled"]),
            "encoder_hidden_states_t5": torch.stack(by_name["t5"]),
            "encoder_hidden_states_llama3": torch.stack(by_name["llama"]),
        }

    def denoiser_inputs(self, x: Tensor, sigma: Tensor, text: dict[str, Tensor], given: dict[str, Tensor]) -> dict[str, Any]:
        """Arguments of HiDreamImageTransformer2DModel, which has no frames; its timestep is 1000 · sigma."""
        self._check_size(x.shape)
        layers = {"encoder_hidden_states_llama3": text["encoder_hidden_states_llama3"].transpose(0, 1)}  # [layers, B, L, D]
        return {"hidden_states": x[:, :, 0], "timesteps": sigma * 1000, **text, **layers}

    def _check_size(self, shape: Sequence[int]) -> None:
        """Raises UserError for latents […, h, w] that are not square and have more patches than the transformer pads to."""
        (height, width), most = shape[-2:], self.config.get("max_resolution", (128, 128))
        if height != width and height * width > most[0] * most[1]:
            found = f"{height * 8}x{width * 8} is too large: beyond {most[0] * 8}x{most[1] * 8} this model takes squares only."
            raise fail("height and width", found, "Use fewer pixels, or a square.")

    def velocity(self, output: Any, x: Tensor, sigma: Tensor) -> Tensor:
        """The predicted x0 - noise [B, C, h, w], negated, as one frame."""
        return -output[0].unsqueeze(2)

    def text_shapes(self) -> dict[str, tuple[int, ...]]:
        """The pooled embedding of both CLIP models, T5's states and those of Llama's layers."""
        t5, llama = self.config["caption_channels"]
        layers = max(self.config["llama_layers"]) + 1
        return {"pooled": (self.config["text_emb_dim"],), "t5": (MOST_TOKENS, t5), "llama": (layers, MOST_TOKENS, llama)}

    # LoRA

    @property
    def keys(self) -> KeyMap:
        """Names of ComfyUI's class, the same as diffusers'."""
        return keys.TRANSFORMER

    def write_comfy_files(self, transformer: Path, vae: Path) -> None:
        """Two .safetensors files."""
        write_comfy_files(self.files, transformer, vae)
