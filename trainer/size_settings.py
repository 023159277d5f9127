"""Settings of clip sizes: buckets, areas and shapes, and how frames are fitted into them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ValidationError, field_validator

from .errors import UserError, fail, from_validation
from .settings import Settings, setting


class Resolution(Settings):
    """An area to train at, as that of height × width in pixels."""

    height: int = setting(512, "Height", "Height of a frame of this area.", unit="px", ge=16, le=8192)
    width: int = setting(512, "Width", "Width of a frame of this area.", unit="px", ge=16, le=8192)

    def __str__(self) -> str:
        return f"{self.height}x{self.width}"

    @classmethod
    def parse(cls, text: str, where: str = "resolutions") -> Resolution:
        """Reads "512" (the area of a square) or "480x832" (height x width); raises UserError naming the text."""
        sides = _numbers(text)
        if not 1 <= len(sides) <= 2:
            raise fail(where, f"'{text}' is not an area.", "Write a side such as 512, or height x width such as 480x832.")
        return _checked(cls, where, height=sides[0], width=sides[-1])


class Bucket(Settings):
    """A clip size to train at: frames × height × width, in pixels."""

    frames: int = setting(17, "Frames", "Frames of the clip, at the family's frame rate.", unit="frames", ge=1, le=2048)
    height: int = setting(480, "Height", "Height of the frames.", unit="px", ge=16, le=8192)
    width: int = setting(832, "Width", "Width of the frames.", unit="px", ge=16, le=8192)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Frames, height, width."""
        return self.frames, self.height, self.width

    def __str__(self) -> str:
        return f"{self.frames}x{self.height}x{self.width}"

    @classmethod
    def parse(cls, text: str, where: str = "buckets") -> Bucket:
        """Reads "49x480x832" (frames x height x width); raises UserError naming the text."""
        parts = _numbers(text)
        if len(parts) != 3:
            raise fail(where, f"'{text}' is not a size.", "Write frames x height x width, such as 49x480x832.")
        return _checked(cls, where, frames=parts[0], height=parts[1], width=parts[2])


def from_text(part: type[Bucket | Resolution], text: str) -> Bucket | Resolution:
    """A size written as text, for validators: raises the ValueError that pydantic tells with the setting."""
    try:
        return part.parse(text)
    except UserError as error:
        raise ValueError("; ".join(f"{problem.found} {problem.cure}" for problem in error.problems)) from None


class ClipSizes(Settings):
    """The sizes that clips are trained at."""

    buckets: list[Bucket] = setting(
        list, "Buckets", "Clip sizes; a clip takes the longest that it fills, of the nearest shape. Empty: chosen from the clips."
    )
    frame_buckets: list[int] = setting(
        list, "Frame counts", "Lengths to train at, such as 1, 17, 33: with the areas they make more buckets, each length in each size. "
        "A clip takes the longest that it fills. 1 is for still images, which are always trained as one frame.",
    )  # fmt: skip
    resolutions: list[Resolution] = setting(
        list, "Areas", "Areas to train at: a side such as 512, whose square is meant, or height x width such as 480x832. Each is used in "
        "several shapes; a clip takes the nearest shape, then the nearest area.",
    )  # fmt: skip
    aspect_ratios: list[float] = setting(
        list, "Shapes", "Shapes of the areas as width : height, such as 16:9, 1:1. Empty: the common ones from 9:21 to 21:9, and the "
        "area's own.",
    )  # fmt: skip
    crop_position: Literal["centre", "left", "right", "top", "bottom", "random"] = setting(
        "centre", "Crop", "What is kept of frames whose shape is not that of their bucket: frames are scaled to cover it, never distorted, "
        "and the rest is cut off. random: drawn for each variant.", advanced=True,
    )  # fmt: skip
    no_upscale: bool = setting(
        False, "Never enlarge", "Clips take only buckets that they can fill without being enlarged; one that is smaller than every bucket "
        "is trained at its own size, cut to what the model takes.", advanced=True,
    )  # fmt: skip

    @field_validator("buckets", "resolutions", mode="before")
    @classmethod
    def _from_text(cls, values: Any, info: Any) -> Any:
        """Sizes may be written as text, or an area as a number."""
        part = Bucket if info.field_name == "buckets" else Resolution
        if not isinstance(values, (list, tuple)):
            return values
        return [from_text(part, str(value)) if isinstance(value, (str, int)) else value for value in values]

    @field_validator("frame_buckets")
    @classmethod
    def _lengths(cls, counts: list[int]) -> list[int]:
        if any(not 1 <= count <= 2048 for count in counts):
            raise ValueError("frame counts are from 1 to 2048")
        return counts

    @field_validator("aspect_ratios", mode="before")
    @classmethod
    def _shapes(cls, values: Any) -> Any:
        return [_ratio(value) if isinstance(value, str) else value for value in values] if isinstance(values, (list, tuple)) else values

    @field_validator("aspect_ratios")
    @classmethod
    def _sensible_shapes(cls, ratios: list[float]) -> list[float]:
        if any(not 0.1 <= ratio <= 10 for ratio in ratios):
            raise ValueError("shapes are from 1:10 to 10:1")
        return ratios


def _numbers(text: str) -> list[int]:
    """Whole numbers with x between them; none if it is anything else."""
    parts = text.lower().replace("×", "x").replace(" ", "").split("x")
    return [int(part) for part in parts] if all(part.isdecimal() for part in parts) else []


def _ratio(text: str) -> float:
    width, _, height = text.replace("/", ":").partition(":")
    try:
        return float(width) / float(height or 1)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"'{text}' is not a shape; write width:height, such as 16:9") from None


def _checked(part: Any, where: str, **values: int) -> Any:
    try:
        return part(**values)
    except ValidationError as error:
        raise from_validation(error, lambda _: list(part.model_fields), where) from None
