"""How FramePack packs a section of a video with what was made before it: indices in time, and the history.

A video has a start latent and then sections of nine latents. Each is made from the start and the nineteen latents nearest
to it that exist already: one as it is, two at half its size, sixteen at a quarter. Backward is the paper's inverted
anti-drifting order, in which the history is the future; forward is the order of the F1 model. Source: diffusers'
HunyuanVideoFramepackPipeline (pipeline_hunyuan_video_framepack.py), Zhang and Agrawala 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

WINDOW = 9  # latents of a section
NEAR, HALVED, QUARTERED = 1, 2, 16  # latents of the history at their own size, at a half and at a quarter
HISTORY = NEAR + HALVED + QUARTERED


@dataclass(frozen=True)
class Indices:
    """Where in time the latents lie, as the rotary embedding counts: of the section, of start and nearest, and of the rest."""

    section: tuple[int, ...]
    clean: tuple[int, ...]
    halved: tuple[int, ...]
    quartered: tuple[int, ...]


def section_count(latents: int) -> int:
    """Whole sections of a video of so many latents; none in a single one."""
    return (latents - 1) // WINDOW


def order_of(sections: int, forward: bool) -> list[int]:
    """Numbers in time of the sections, in the order in which they are made."""
    return list(range(sections)) if forward else list(reversed(range(sections)))


def paddings(sections: int) -> list[int]:
    """Sections left free between the start and the one that is made, in the order of making; never more than three in longer videos."""
    return [3, *[2] * (sections - 3), 1, 0] if sections > 4 else list(reversed(range(sections)))


def indices_of(sections: int, number: int, forward: bool) -> Indices:
    """Indices of section `number` in time; without sections those of a single latent, which takes the last place of a section."""
    if sections and forward:
        start, quartered, halved, near, section = _runs(1, QUARTERED, HALVED, NEAR, WINDOW)
        return Indices(section, start + near, halved, quartered)
    padding = paddings(sections)[order_of(sections, forward).index(number)] if sections else 0
    start, _, section, near, halved, quartered = _runs(1, padding * WINDOW, WINDOW, NEAR, HALVED, QUARTERED)
    return Indices(section if sections else section[-1:], start + near, halved, quartered)


def _runs(*lengths: int) -> list[tuple[int, ...]]:
    """Runs of whole numbers of these lengths, one after the other from 0."""
    ends = list(accumulate(lengths))
    return [tuple(range(end - length, end)) for end, length in zip(ends, lengths, strict=True)]


def section_at(number: int) -> slice:
    """The latents of section `number` in time."""
    return slice(1 + number * WINDOW, 1 + (number + 1) * WINDOW)


def history_of(latents: Tensor, number: int, forward: bool) -> tuple[Tensor, Tensor]:
    """What is made before section `number` of latents [..., T, h, w]: [..., 19, h, w], zeros where there is nothing yet.

    Backward it begins with the nearest, forward it ends with it. The second tensor [19] is 1 where a latent is the model's
    own work: neither zeros nor the start.
    """
    import torch

    at = section_at(number)
    if forward:
        known = latents[..., : at.start, :, :][..., -HISTORY:, :, :]
        own = [place >= 1 for place in range(at.start - known.shape[-3], at.start)]
    else:
        known = latents[..., at.stop :, :, :][..., :HISTORY, :, :]
        own = [True] * known.shape[-3]
    missing = HISTORY - known.shape[-3]
    nothing, none = known.new_zeros(*known.shape[:-3], missing, *known.shape[-2:]), [False] * missing
    history = torch.cat([nothing, known] if forward else [known, nothing], dim=-3)
    return history, torch.tensor([*none, *own] if forward else [*own, *none], dtype=torch.float32)


def made_before(video: Tensor, number: int, forward: bool) -> dict[str, Tensor]:
    """What a section of a video [C, T, h, w] in model space is given of it: "history", "made" and all indices.

    A single latent has no history, and is told to be the last of its section.
    """
    import torch

    sections = section_count(video.shape[1])
    history, made = history_of(video, number, forward and bool(sections))
    indices = indices_of(sections, number, forward)
    named = {"section": indices.section, "clean": indices.clean, "halved": indices.halved, "quartered": indices.quartered}
    return {"history": history, "made": made, **{f"{name}_indices": torch.tensor(places) for name, places in named.items()}}


def split_history(history: Tensor, forward: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The nearest of the history's latents [..., 19, h, w], those at half their size, and those at a quarter."""
    if forward:
        quartered, halved, near = history.split([QUARTERED, HALVED, NEAR], dim=-3)
    else:
        near, halved, quartered = history.split([NEAR, HALVED, QUARTERED], dim=-3)
    return near, halved, quartered
