"""sampling_memory: how a run decodes its sample videos so that they take hardly more of the card than training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..optimizer_kinds import averages
from .choices import Decoding
from .choosing import taken
from .vae_memory import vae_peaks

if TYPE_CHECKING:
    from ..job import TrainingJob
    from ..models.base import FamilySpec, ModelFamily
    from .prediction import Prediction

RAISED = 1.1  # of training's peak that drawing samples may take


@dataclass(frozen=True)
class SamplingMemory:
    """How samples are to be decoded, and the bytes that drawing them takes of the card, context and gaps counted."""

    decoding: Decoding
    taken: float
    tiling_helps: bool = False  # memory.vae_tiling would lower what is more than RAISED


def sampling_memory(
    job: TrainingJob, family: ModelFamily, largest: tuple[int, int, int], prediction: Prediction, forward: int, card: float,
    image_encoder: int = 0,
) -> SamplingMemory:  # fmt: skip
    """The plan for samples of a job: what changes nothing for RAISED times training's peak, tiles only for `card` bytes.

    `largest` is the size of the largest clips, `forward` bytes that a forward pass takes beside the transformer, `image_encoder` those
    of the image encoder. What the VAE takes is not counted, and nothing is changed, where it cannot be told.
    """
    own = prediction.adapter - prediction.state if averages(job.optimizer) else 0
    resident, state = prediction.weights + prediction.adapter + own, prediction.state + own
    drawn, wanted = taken(resident + forward), min(RAISED * taken(prediction.peak), card)
    vae = _work(job, family, largest, job.memory.vae_tiling, image_encoder)
    if vae is None:
        return SamplingMemory(Decoding(), drawn)
    together, parked = (max(drawn, taken(beside + vae.bytes)) for beside in (resident, state))
    if together <= max(wanted, drawn):
        return SamplingMemory(Decoding(), together)
    may_tile = vae.tiles and not job.memory.vae_tiling
    tiled = _work(job, family, largest, True, image_encoder) if may_tile and parked > max(wanted, drawn) else None
    helps = tiled is not None and tiled.bytes < vae.bytes
    if parked <= card or tiled is None or not helps:
        return SamplingMemory(Decoding(parked=True), parked, helps)
    return SamplingMemory(Decoding(parked=True, tiled=True), max(drawn, taken(state + tiled.bytes)))


@dataclass(frozen=True)
class _Work:
    bytes: int  # the VAE's weights and what it takes beside them
    tiles: bool


def _work(job: TrainingJob, family: ModelFamily, largest: tuple[int, int, int], tiled: bool, image_encoder: int) -> _Work | None:
    """What the VAE takes for the largest sample; None if that could not be told.

    Pictures that a sample starts from are encoded as memory.vae_tiling says, however it is decoded.
    """
    size = sample_size(job, largest)
    vae = vae_peaks(family, size, tiled)
    if vae.decode is None:
        return None
    encode = 0
    if sees_pictures(job, family.spec):
        seen = size if family.spec.pictures_as_clips else (1, *size[1:])
        encode = (vae_peaks(family, seen, job.memory.vae_tiling).encode or 0) + image_encoder
    return _Work(vae.weights + max(vae.decode, encode), vae.tiles)


def sample_size(job: TrainingJob, largest: tuple[int, int, int]) -> tuple[int, int, int]:
    """Frames, height and width of the largest sample: of those that name none that of the clips."""
    sizes = [prompt.size.shape if prompt.size else largest for prompt in job.samples.prompts] or [largest]
    return max(sizes, key=lambda size: size[0] * size[1] * size[2])


def sees_pictures(job: TrainingJob, spec: FamilySpec) -> bool:
    """Whether samples start from pictures, which the VAE encodes."""
    return bool(spec.required) or any(prompt.image or prompt.last_image for prompt in job.samples.prompts)
