"""What the VAE takes of a card while clips are encoded and sample videos decoded, rehearsed without memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from ..errors import Problem, UserError
from .remembered import model_key, remembered

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from ..job import MemorySettings
    from ..models.base import ModelFamily

COLOURS = 3
JOINING = 3  # times a clip's pixels while its tiles are put together: rows of it, all of it, and what is made of that


@dataclass(frozen=True)
class VaeMemory:
    """Bytes of the VAE's weights, and at most beside them; None where that could not be told."""

    weights: int = 0
    encode: int | None = None
    decode: int | None = None
    tiles: bool = False  # whether the VAE can work in tiles of the frame


def vae_peaks(family: ModelFamily, size: tuple[int, int, int], tiled: bool = False) -> VaeMemory:
    """The VAE's memory for one clip of frames, height and width: whole frames at a time, or `tiled` if it can.

    In tiles it is that of one tile, as the rehearsal of all takes minutes, and of the tiles that are kept and put together.
    """
    try:
        config = family.files.config("vae")
        return remembered((*model_key(family, config), size, tiled), lambda: _rehearsed(family, size, tiled))
    except (UserError, ImportError):  # a run that needs a VAE which cannot be made tells so where it loads it
        return VaeMemory()


def _rehearsed(family: ModelFamily, size: tuple[int, int, int], tiled: bool) -> VaeMemory:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from .twin import fill, twin_of

    twin = twin_of(family)
    vae: Any = twin.load_vae()
    tiles = can_tile(vae)
    cut = _tiles(vae, size) if tiled and tiles else None
    frames, height, width = cut.size if cut else size
    with FakeTensorMode(allow_non_fake_inputs=True):
        fill(vae)
        clip = torch.empty(frames, height, width, COLOURS, dtype=torch.uint8)
        latents = torch.empty(1, *family.spec.latent_shape(frames, height, width))
        encode = peak_of(vae, lambda: twin.encode_video(vae, clip))
        decode = peak_of(vae, lambda: twin.decode_video(vae, latents))
    weights = sum(tensor.numel() * tensor.element_size() for tensor in (*vae.parameters(), *vae.buffers()))
    if cut:
        encode = encode and encode + cut.joined
        decode = decode and max(decode + cut.apart, cut.apart + JOINING * cut.joined)
    return VaeMemory(weights, encode, decode, tiles)


def image_encoder_bytes(family: ModelFamily, dtype: torch.dtype) -> int:
    """Bytes of the image encoder, which is on the card while the VAE encodes pictures; 0 of models that see none through one."""
    from ..models.loading import empty_model

    config = family.files.config("image_encoder") if family.spec.image_encoder else {}
    if not config:
        return 0
    module = empty_model(family.weight_classes()["image_encoder"], config)
    tensors = (*module.parameters(), *module.buffers())
    return sum(tensor.numel() * (dtype.itemsize if tensor.is_floating_point() else tensor.element_size()) for tensor in tensors)


def can_tile(vae: Any) -> bool:
    """Whether a VAE can be told to work in tiles of the frame, and not to."""
    return all(hasattr(vae, name) for name in ("enable_tiling", "disable_tiling", "use_tiling"))


def unmet_savings(family: ModelFamily, memory: MemorySettings) -> list[Problem]:
    """A problem for each saving of the settings that the family's VAE, made without weights, lacks, or why it cannot be made."""
    from .twin import twin_of

    if not (memory.vae_tiling or memory.vae_slicing):
        return []
    try:
        vae = twin_of(family).load_vae()
    except UserError as error:
        return error.problems
    except ImportError:  # of a library without this class: told with the cure where the VAE is loaded
        return []
    return missing_savings(vae, memory)


def missing_savings(vae: object, memory: MemorySettings) -> list[Problem]:
    """A problem for each saving of the settings that a VAE lacks."""
    wanted = {"tiling": memory.vae_tiling, "slicing": memory.vae_slicing}
    lacking = [name for name, on in wanted.items() if on and not hasattr(vae, f"use_{name}")]
    return [Problem(f"memory.vae_{name}", f"this model's VAE has no {name}.", "Set it to false.") for name in lacking]


@dataclass(frozen=True)
class _Tiles:
    """A tile's frames, height and width, and the bytes of all pixels of a clip: in tiles with what they overlap, and joined."""

    size: tuple[int, int, int]
    apart: int
    joined: int


def _tiles(vae: Any, size: tuple[int, int, int]) -> _Tiles | None:
    """How diffusers' VAEs cut a clip; None if it is no larger than a tile.

    They name a tile's sides in pixels, and how far apart tiles begin or which share of them overlaps.
    """
    frames, *sides = size
    sizes, apart = [], frames
    for side, name in zip(sides, ("height", "width"), strict=True):
        tile = int(getattr(vae, f"tile_sample_min_{name}", side))
        share = getattr(vae, f"tile_overlap_factor_{name}", getattr(vae, "tile_overlap_factor", 0.25))
        stride = int(getattr(vae, f"tile_sample_stride_{name}", tile * (1 - share)))
        sizes.append(min(side, tile))
        apart *= sum(min(tile, side - start) for start in range(0, side, stride)) if side > tile else side
    pixel = COLOURS * next(vae.parameters()).element_size()
    return _Tiles((frames, sizes[0], sizes[1]), apart * pixel, prod(size) * pixel) if sizes != sides else None


def peak_of(vae: Any, call: Callable[[], object]) -> int | None:
    """Bytes at most that a call of a VAE without weights takes beside it, under a fake mode; None if it asks for values."""
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
