"""What the VAE takes of a card while clips are encoded and sample videos decoded, rehearsed without memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..models.base import ModelFamily


@dataclass(frozen=True)
class VaeMemory:
    """Bytes of the VAE's weights, and at most beside them; None where that could not be told."""

    weights: int = 0
    encode: int | None = None
    decode: int | None = None


def vae_peaks(family: ModelFamily, size: tuple[int, int, int]) -> VaeMemory:
    """The VAE's memory for one clip of frames, height and width, whole frames at a time."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from .twin import fill, twin_of

    twin = twin_of(family)
    try:
        vae: Any = twin.load_vae()
    except Exception:  # a configuration that is not there
        return VaeMemory()
    with FakeTensorMode(allow_non_fake_inputs=True):
        fill(vae)
        frames, height, width = size
        clip, latents = torch.empty(frames, height, width, 3, dtype=torch.uint8), torch.empty(1, *family.spec.latent_shape(*size))
        encode = _peak(vae, lambda: twin.encode_video(vae, clip))
        decode = _peak(vae, lambda: twin.decode_video(vae, latents))
    weights = sum(tensor.numel() * tensor.element_size() for tensor in (*vae.parameters(), *vae.buffers()))
    return VaeMemory(weights, encode, decode)


def _peak(vae: Any, call: Callable[[], object]) -> int | None:
    import torch

    from .control_values import Masks
    from .ledger import Ledger

    try:
        with torch.no_grad(), Ledger(Masks()) as ledger:
            ledger.leave_out([*vae.parameters(), *vae.buffers()])
            call()
    except Exception:  # code that asks for values, which there are none of
        return None
    return max(ledger.alive(), default=0)
