"""Whether someone else's encodings fit the model that is to be trained on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from ...errors import UserError, fail
from ...files import kind_of
from ...job import Bucket
from ...models.files import DiffusersFolder
from ..clips import VAE_PARTS
from ..content import ContentIndex, component_identity
from ..sources.paths import folder_path
from ..texts import TEXT_PARTS
from .scan import Row

if TYPE_CHECKING:
    from torch import Tensor

    from ...models.base import FamilySpec, ModelFamily

LEAST_LIKENESS = 0.9  # mean cosine of the embeddings of one caption; other precisions of one encoder stay above 0.99


def latent_axes(shape: Sequence[int]) -> list[int]:
    """[C, T, h, w] of stored latents, which for an image may be [C, h, w]."""
    return [shape[0], 1, *shape[1:]] if len(shape) == 3 else list(shape)


def text_axes(shape: Sequence[int]) -> list[int]:
    """[L, D] of a stored embedding, which old files keep as [1, L, D]."""
    return list(shape[1:]) if len(shape) == 3 and shape[0] == 1 else list(shape)


def clip_size(shape: Sequence[int], spec: FamilySpec) -> Bucket:
    """The clip size of latents [C, T, h, w]; raises ValidationError if no clip may have it."""
    stride_t, stride_h, stride_w = spec.latent_stride
    return Bucket(frames=(shape[1] - 1) * stride_t + 1, height=shape[2] * stride_h, width=shape[3] * stride_w)


def misfit(row: Row, spec: FamilySpec) -> str:
    """Why the model cannot be trained on a row; empty if it can."""
    latent, text = latent_axes(row.latent_shape), text_axes(row.text_shape)
    if not latent:
        return "has text only, no latents"
    if len(latent) != 4:
        return f"latents have shape {row.latent_shape}, not [C, T, h, w]"
    if latent[0] != spec.latent_channels:
        return f"latents have {latent[0]} channels, and this model's have {spec.latent_channels}"
    try:
        size = clip_size(latent, spec)
    except ValidationError:
        return f"latents of shape {row.latent_shape} are of no size that can be trained"
    if not spec.frame_rule.allows(size.frames):
        return f"latents are of {size.frames} frames, and this model takes {spec.frame_rule}"
    if spec.size_near(size.height, size.width) != (size.height, size.width):
        return f"latents are of {size.height}x{size.width} px, and this model takes {spec.size_rule}"
    if len(text) != 2:
        return f"the text embedding has shape {row.text_shape}, not [L, D]"
    if text[1] != spec.text_width:
        return f"the text embedding has {text[1]} channels, and this model's have {spec.text_width}"
    if text[0] > spec.text_length:
        return f"the text embedding has {text[0]} tokens, and this model reads {spec.text_length}"
    return ""


def encoder_doubt(encoder: str, family: ModelFamily, index: ContentIndex, check: Callable[[], None], where: str) -> str:
    """What is unsure about the declared encoder, a model folder or hub id; empty if it is this model.

    Raises UserError, of the setting `where`, if it is a model whose latents or texts this one cannot use.
    """
    if not encoder.strip():
        return "It is not declared which model's VAE and text encoder made these files; they are taken for this model's."
    folder = folder_path(encoder)
    if kind_of(folder) != "folder":
        return "" if _names(encoder, family) else f"'{encoder}' is no folder here: whether its encoders are this model's cannot be checked."
    if str(folder.resolve()) == str(Path(family.files.name).resolve()):
        return ""
    _require_alike(encoder, family, where)
    parts = (*VAE_PARTS, *TEXT_PARTS)
    differing = [
        part
        for part in parts
        if component_identity(index, DiffusersFolder(folder).paths([part]), check)
        != component_identity(index, family.files.paths([part]), check)
    ]
    if not differing:
        return ""
    which = f"The files of {', '.join(differing)} in '{folder}' are not those of '{family.files.name}'"
    return f"{which}: train only if the weights are the same."


def _names(encoder: str, family: ModelFamily) -> bool:
    """Whether a hub id is that of the model in use: by the last part of its name, or by the hub cache's folder."""
    name = encoder.strip().strip("/").lower()
    parts = [part.lower() for part in Path(family.files.name).absolute().parts]
    return name.rpartition("/")[2] == parts[-1] or f"models--{name.replace('/', '--')}" in parts


def _require_alike(encoder: str, family: ModelFamily, where: str) -> None:
    from ...models import open_model

    try:
        made, used = open_model(folder_path(encoder)).spec, family.spec
    except UserError:
        return  # a model of no family here may share its encoders with one
    for name in ("family", "latent_channels", "latent_stride", "text_width"):
        if getattr(made, name) != getattr(used, name):
            found = f"'{encoder}' is of {name.replace('_', ' ')} {getattr(made, name)}, and the model to train of {getattr(used, name)}."
            raise fail(where, found, "Encode the clips with the model that is to be trained.")


def likeness(first: Tensor, second: Tensor) -> float:
    """Mean cosine similarity of two embeddings [L, D] over the tokens that both have."""
    from torch.nn.functional import cosine_similarity

    tokens = min(len(first), len(second))
    return float(cosine_similarity(first[:tokens].float(), second[:tokens].float(), dim=-1).mean())
