"""What the data needs of the model's encoders, and the identity of their weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ..models.base import ImageEncoder, TextEncoder


class Precision(Protocol):
    """Where and in which dtype the encoders compute."""

    device: torch.device
    dtype: torch.dtype


class Encoders(Protocol):
    """Encoders that are loaded when first asked for: `trainer.components.Components`, or a stand-in for tests."""

    @property
    def compute(self) -> Precision:
        """Device and dtype."""
        ...

    @property
    def tiled(self) -> bool:
        """Whether the VAE encodes in tiles of the frame, which gives other latents."""
        ...

    def vae(self) -> nn.Module:
        """The VAE, on the device."""
        ...

    def text_encoder(self) -> TextEncoder:
        """Tokenizer and text encoder, on the device."""
        ...

    def image_encoder(self) -> ImageEncoder:
        """Processor and image encoder, on the device; only for families that have one."""
        ...

    def park_vae(self) -> None:
        """Takes the VAE off the device."""

    def park_image_encoder(self) -> None:
        """Takes the image encoder off the device."""

    def park_text_encoder(self) -> None:
        """Takes the text encoder off the device."""
