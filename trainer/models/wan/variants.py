"""Which Wan a model is, from its configurations alone, and what its release says of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import Problem
from ..base import Expert, GoalValues
from ..files import ModelFiles

Size = tuple[int, int, int]
SIZES = {(30, 1536): "1.3b", (40, 5120): "14b", (30, 3072): "5b"}  # (layers, width) of the releases
SMALL: Size = (17, 64, 64)  # default bucket of any other size: the shipped demo model and test models
LOW_RESOLUTION_SHIFT = 3.0  # flow_shift of the 480p release of image-to-video; that of 720p is 5
DISTILLED = re.compile(r"distill|lightning|lightx2v|causvid|fastwan|self.?forcing|(?<![a-z])(dmd|turbo)", re.IGNORECASE)
RELEASES: dict[str, tuple[Size, float]] = {  # frames x height x width, guidance
    "t2v-1.3b": ((81, 480, 832), 5.0),
    "t2v-14b": ((81, 480, 832), 5.0),
    "i2v-14b-480p": ((81, 480, 832), 5.0),
    "i2v-14b-720p": ((81, 720, 1280), 5.0),
    "flf2v-14b": ((81, 720, 1280), 5.5),
    "t2v-a14b": ((81, 480, 832), 4.0),
    "i2v-a14b": ((81, 480, 832), 3.5),
    "ti2v-5b": ((121, 704, 1280), 5.0),
}
MOTION_SHIFT = 5.0  # that of the releases of larger pictures, which has the noise levels that decide on motion drawn more often
EXPERTS_RATE = 1e-4  # of ai-toolkit's example for the model of two experts


def goal_values(shift: float, experts: int) -> dict[str, GoalValues]:
    """What presets of goals have of their own, for a model's shift; that motions want the higher one is our judgement."""
    motion = {"motion": GoalValues(shift=MOTION_SHIFT)} if shift < MOTION_SHIFT else {}
    return motion | ({"character": GoalValues(learning_rate=EXPERTS_RATE)} if experts > 1 else {})


@dataclass(frozen=True)
class Variant:
    """What a Wan can do: `kind` is t2v, i2v, flf2v or ti2v, empty for what is not known here."""

    kind: str
    name: str
    bucket: Size
    guidance: float
    fps: float
    sees_pictures: bool  # through an image encoder
    experts: tuple[Expert, ...]
    conditions: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    step_distilled: bool = False
    problems: tuple[Problem, ...] = field(default=(), compare=False)


def find_variant(files: ModelFiles, shift: float, latents: int, temporal_stride: int) -> Variant:
    """The variant of a model whose VAE has so many latent channels; raises nothing, what does not fit is in `problems`."""
    transformer, index = files.config("transformer"), files.config("model_index")
    size = (transformer.get("num_layers", 40), transformer.get("num_attention_heads", 40) * transformer.get("attention_head_dim", 128))
    sees, per_token = transformer.get("image_dim") is not None, bool(index.get("expand_timesteps"))
    kind = _kind(transformer, latents, temporal_stride, sees, per_token)
    experts = _experts(files, kind)
    name = _name(kind, SIZES.get(size, ""), len(experts) > 1, shift)
    bucket, guidance = RELEASES.get(name, (SMALL, 2.0))
    distilled = _distilled(files)
    conditions = {"i2v": ("first_frame",), "flf2v": ("first_frame", "last_frame"), "ti2v": ("first_frame",)}.get(kind, ())
    return Variant(
        kind=kind,
        name=name if name in RELEASES else f"{kind}-small",
        bucket=bucket,
        guidance=1.0 if distilled else guidance,
        fps=24.0 if per_token else 16.0,
        sees_pictures=sees,
        experts=experts,
        conditions=conditions,
        required=() if per_token else conditions,
        step_distilled=distilled,
        problems=tuple(_problems(files, kind, latents, experts)),
    )


def _kind(transformer: dict[str, Any], latents: int, temporal_stride: int, sees: bool, per_token: bool) -> str:
    """By the channels: those of the noise alone, or beside them a mask and the latents of the given frames (WanImageToVideoPipeline)."""
    channels = transformer.get("in_channels", 16)
    if transformer.get("_class_name") != "WanTransformer3DModel":
        return ""
    if channels == latents and not sees:
        return "ti2v" if per_token else "t2v"
    if channels == 2 * latents + temporal_stride and not per_token:
        return "flf2v" if transformer.get("pos_embed_seq_len") else "i2v"
    return ""


def _experts(files: ModelFiles, kind: str) -> tuple[Expert, ...]:
    """Two where the model says at which share of the noise the second takes over (`boundary_ratio`), 0.875 and 0.9 in the releases."""
    boundary = files.config("model_index").get("boundary_ratio")
    if boundary is None and not files.config("transformer_2"):
        return (Expert(""),)
    boundary = float(boundary if boundary is not None else 0.9 if kind == "i2v" else 0.875)
    return (Expert("high", "transformer", boundary, 1.0), Expert("low", "transformer_2", 0.0, boundary))


def _distilled(files: ModelFiles) -> bool:
    """Whether the model draws in a few steps without guidance: its pipeline says so, or it is called so."""
    names = (Path(files.name).name, str(files.config("transformer").get("_name_or_path", "")))
    return files.config("model_index").get("_class_name") == "WanDMDPipeline" or any(DISTILLED.search(name) for name in names)


def _name(kind: str, size: str, two: bool, shift: float) -> str:
    if two:
        return f"{kind}-a14b" if size == "14b" else ""
    if kind == "i2v":
        return f"i2v-{size}-{'480p' if shift <= LOW_RESOLUTION_SHIFT else '720p'}"
    return f"{kind}-{size}"


def _problems(files: ModelFiles, kind: str, latents: int, experts: tuple[Expert, ...]) -> list[Problem]:
    transformer, problems = files.config("transformer"), list[Problem]()
    if not kind:
        found = f"{transformer.get('_class_name')} with {transformer.get('in_channels', 16)} input channels over {latents} latent channels"
        known = "text-to-video, image-to-video, first and last frame, and text-and-image-to-video models"
        problems.append(Problem(files.name, f"is a variant that cannot be trained: {found}.", f"Known are {known} of Wan 2.1 and 2.2."))
    if len(experts) > 1:
        if not 0 < experts[0].low < 1:
            problems.append(
                Problem(f"{files.name}, boundary_ratio", f"{experts[0].low:g} is not between 0 and 1.", "Download the model again.")
            )
        first, second = ({k: v for k, v in files.config(e.part).items() if not k.startswith("_")} for e in experts)
        if second and first != second:
            differing = sorted(key for key in first.keys() | second.keys() if first.get(key) != second.get(key))
            found = f"the two transformers differ in {', '.join(differing)}."
            problems.append(Problem(files.name, found, "Take both from the same release."))
    return problems
