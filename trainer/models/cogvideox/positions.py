"""Rotary positions, as diffusers' CogVideoXPipeline prepares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def rotary_positions(config: Mapping[str, Any], shape: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine [T·h·w patches, head width] for latents [C, T, h, w] and a transformer's configuration.

    CogVideoX fits the frame's patches into those of its own size; 1.5 counts them from the corner. Beyond its own size,
    where the pipeline fails, the counting goes on. Source: `_prepare_rotary_positional_embeddings`.
    """
    from diffusers.models.embeddings import get_3d_rotary_pos_embed
    from diffusers.pipelines.cogvideo.pipeline_cogvideox import get_resize_crop_region_for_grid

    patch, frames_of_patch = config["patch_size"], config["patch_size_t"]
    frames, height, width = shape[1], shape[2] // patch, shape[3] // patch
    own_height, own_width = config["sample_height"] // patch, config["sample_width"] // patch
    if frames_of_patch is None:
        crop = get_resize_crop_region_for_grid((height, width), own_width, own_height)
        how: dict[str, Any] = {"crops_coords": crop, "temporal_size": frames}
    else:
        most = (max(own_height, height), max(own_width, width))
        how = {"crops_coords": None, "temporal_size": frames // frames_of_patch, "grid_type": "slice", "max_size": most}
    made = get_3d_rotary_pos_embed(embed_dim=config["attention_head_dim"], grid_size=(height, width), device=device, **how)
    return made[0], made[1]
