"""Decoded frames to RGB: which matrix and range a stream uses, and the conversion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from av import VideoFrame

BT709, BT601, BT2020 = 1, 5, 9  # matrix numbers shared by ITU-T H.273 and swscale
_UNTAGGED = (0, 2)
_LIMITED, _FULL = 1, 2  # AVCOL_RANGE_MPEG, AVCOL_RANGE_JPEG
_HDR_CURVES = {16: "PQ", 18: "HLG"}  # H.273 transfer characteristics
_CHROMA = 0x4 | 0x2000 | 0x40000  # swscale: bicubic, full chroma, accurate rounding


@dataclass(frozen=True)
class Colour:
    """How a stream's samples mean colours: matrix and range numbers of swscale, HDR curve name or empty."""

    matrix: int
    range: int
    hdr: str = ""


def colour_of(frame: VideoFrame, curve: int) -> Colour:
    """The frame's colour as tagged, `curve` being the stream's transfer characteristic.

    Untagged pictures of 720 lines and more are BT.709, smaller ones BT.601.
    """
    matrix = int(frame.colorspace)
    if matrix in _UNTAGGED:
        high = min(frame.width, frame.height) >= 720 or max(frame.width, frame.height) >= 1280
        matrix = BT709 if high else BT601
    full = int(frame.color_range) == _FULL or frame.format.name.startswith("yuvj")
    return Colour(matrix, _FULL if full else _LIMITED, _HDR_CURVES.get(curve, ""))


def to_rgb(frame: VideoFrame, colour: Colour) -> np.ndarray:
    """A frame as [h, w, 3] uint8 RGB, not rotated; transparent parts turn black."""
    alpha = any(component.is_alpha for component in frame.format.components) or frame.format.has_palette
    target = "rgba" if alpha else "rgb24"
    if frame.format.is_rgb or frame.format.has_palette:
        pixels = frame.reformat(format=target).to_ndarray()
    else:
        other = BT601 if colour.matrix == BT709 else BT709  # RGB has no matrix, but older PyAV skips the conversion if both are equal
        converted = frame.reformat(
            format=target, src_colorspace=colour.matrix, dst_colorspace=other, src_color_range=colour.range, interpolation=_CHROMA
        )
        pixels = converted.to_ndarray()
    if not alpha:
        return pixels
    opacity = pixels[..., 3:].astype(np.uint16)
    return ((pixels[..., :3] * opacity + 127) // 255).astype(np.uint8)
