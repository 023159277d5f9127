"""ModelFamily: all that differs between model families, and nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from diffusers import ModelMixin
    from torch import Tensor, nn


@dataclass(frozen=True)
class FrameRule:
    """Frame counts a family takes: multiple · n + offset, n >= 0."""

    multiple: int
    offset: int = 1

    def floor(self, frames: int) -> int:
        """The largest allowed count not above `frames`; at least `offset`."""
        return max((frames - self.offset) // self.multiple, 0) * self.multiple + self.offset

    def allows(self, frames: int) -> bool:
        """Whether `frames` is allowed as it is."""
        return frames >= self.offset and (frames - self.offset) % self.multiple == 0

    def __str__(self) -> str:
        return f"{self.multiple}n+{self.offset}"


@dataclass(frozen=True)
class FamilySpec:
    """Facts of one loaded model: what sizes it takes, its latents, its defaults."""

    family: str
    variant: str
    frame_rule: FrameRule
    size_multiple: int  # px, of height and width
    fps: float  # native frames/s
    latent_channels: int
    latent_stride: tuple[int, int, int]  # frames, height, width
    text_length: int  # tokens the transformer sees
    train_shift: float  # default shift of training noise levels
    sample_shift: float  # default shift of sampling noise levels
    guidance: float  # default classifier-free guidance
    default_bucket: tuple[int, int, int]  # frames, height, width, where clips do not say otherwise
    conditions: tuple[str, ...] = ()  # e.g. "first_frame"
    adapter_targets: Mapping[str, str] = field(default_factory=dict)  # preset -> regex over module names
    text_width: int = 0  # channels of the text embedding; 0 where a caption has several embeddings

    def latent_shape(self, frames: int, height: int, width: int) -> tuple[int, int, int, int]:
        """[C, T, h, w] of the latents of a clip."""
        stride_t, stride_h, stride_w = self.latent_stride
        return self.latent_channels, (frames - 1) // stride_t + 1, height // stride_h, width // stride_w


@dataclass
class ModelInputs:
    """What the transformer is called with for one micro-batch, and what its output is compared with."""

    kwargs: dict[str, Tensor]
    x: Tensor  # noised latents in model space, [B, C, T, h, w]
    sigma: Tensor  # noise level, [B]
    target: Tensor  # velocity, [B, C, T, h, w]
    loss_mask: Tensor | None = None  # 1 where the loss counts, broadcastable to target


class ModelFamily(ABC):
    """One loaded model: its files, its components and the maths that only this family has.

    Conventions, the same for all families: sigma in [0, 1], 1 = noise; x = (1 - sigma)·x0 + sigma·noise;
    velocity = noise - x0. Text embeddings and latents are dicts of tensors without batch dimension, which the
    cache stores and `stack` batches.
    """

    spec: FamilySpec

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    # files -----------------------------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def recognises(cls, folder: Path) -> bool:
        """Whether the diffusers folder holds a model of this family; reads JSON only."""

    @abstractmethod
    def check_files(self) -> None:
        """Raises UserError naming any missing or unsuitable file, before anything large is read."""

    @abstractmethod
    def load_transformer(self, dtype: torch.dtype) -> ModelMixin:
        """The transformer on the CPU, in eval mode, without gradients."""

    @property
    def vae_dtype(self) -> torch.dtype:
        """Precision of the VAE; half precision costs most of them detail."""
        import torch

        return torch.float32

    @abstractmethod
    def load_vae(self) -> nn.Module:
        """The VAE on the CPU, in `vae_dtype`."""

    @abstractmethod
    def load_text_encoder(self, dtype: torch.dtype) -> TextEncoder:
        """Tokenizer and text encoder on the CPU."""

    # encoders --------------------------------------------------------------------------------------------------

    @abstractmethod
    def encode_video(self, vae: Any, frames: Tensor) -> dict[str, Tensor]:
        """Posterior mode of a clip, un-normalised: [F, H, W, 3] uint8 -> {"latents": [C, T, h, w] float32}."""

    @abstractmethod
    def decode_video(self, vae: Any, latents: Tensor) -> Tensor:
        """Model-space latents [1, C, T, h, w] -> frames [F, H, W, 3] uint8 on the CPU."""

    @abstractmethod
    def encode_text(self, encoder: TextEncoder, text: str) -> dict[str, Tensor]:
        """Cacheable embeddings of one caption, padding cut off; a single embedding [L, D] is named "text"."""

    # the step --------------------------------------------------------------------------------------------------

    @abstractmethod
    def normalize(self, latents: Tensor) -> Tensor:
        """Cached latents [B, C, T, h, w] -> model space (about unit variance)."""

    @abstractmethod
    def text_inputs(self, texts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Cached embeddings of B captions -> batched transformer arguments."""

    @abstractmethod
    def denoiser_inputs(self, x: Tensor, sigma: Tensor, text: dict[str, Tensor]) -> dict[str, Tensor]:
        """The transformer's arguments at model-space x [B, C, T, h, w] and noise level sigma [B]."""

    def velocity(self, output: Any, x: Tensor, sigma: Tensor) -> Tensor:
        """The transformer's output as velocity noise - x0, [B, C, T, h, w]; families that predict it return it as it is."""
        return output[0]

    def model_inputs(self, batch: dict[str, Tensor], text: dict[str, Tensor], noise: Tensor, sigma: Tensor) -> ModelInputs:
        """Training inputs at noise level sigma [B]: batch["latents"] as cached and noise, both [B, C, T, h, w]."""
        x0 = self.normalize(batch["latents"])
        level = sigma.view(-1, 1, 1, 1, 1)
        x = (1 - level) * x0 + level * noise
        return ModelInputs(self.denoiser_inputs(x, sigma, text), x, sigma, target=noise - x0)

    def predict(self, transformer: nn.Module, inputs: ModelInputs) -> Tensor:
        """Velocity predicted for training inputs, [B, C, T, h, w]."""
        return self.velocity(transformer(**inputs.kwargs, return_dict=False), inputs.x, inputs.sigma)

    # LoRA ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def comfy_name(self, module: str) -> str:
        """ComfyUI's name of a transformer module; raises KeyError if ComfyUI has no such linear layer."""

    @abstractmethod
    def module_name(self, comfy: str) -> str:
        """The inverse of `comfy_name`; raises KeyError for an unknown name."""

    @abstractmethod
    def write_comfy_files(self, transformer: Path, vae: Path) -> None:
        """Writes this folder's transformer and VAE as the single files that ComfyUI's loaders read."""

    @property
    def architecture(self) -> str:
        """The modelspec.architecture of LoRA files of this family."""
        return f"{self.spec.family}/lora"


@dataclass
class TextEncoder:
    """Tokenizer and encoder module, moved and freed together."""

    tokenizer: Callable[..., Any]
    module: nn.Module
    truncated: list[str] = field(default_factory=list)  # texts that were longer than the model reads
