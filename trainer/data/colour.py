"""Decoded frames to RGB: what a stream's samples mean, and the conversion, scaled in the same pass."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .fit import resized, shrinks
from .sources.record import UnusableClip
from .tone import BT709 as BT709_PRIMARIES
from .tone import PEAK, WIDE, to_sdr

if TYPE_CHECKING:
    from av import VideoFrame
    from av.video.codeccontext import VideoCodecContext
    from av.video.plane import VideoPlane

BACKGROUND = 0  # level that transparent parts are laid over: black
BT709, BT601, BT2020 = 1, 5, 9  # matrix numbers shared by ITU-T H.273 and swscale
_LUMA = {1: (0.2126, 0.0722), 4: (0.30, 0.11), 5: (0.299, 0.114), 7: (0.212, 0.087), 9: (0.2627, 0.0593)}  # share of red, of blue
_SAME = {6: BT601}  # numbers that mean another's matrix
_UNTAGGED = (0, 2)
_LIMITED, FULL = 1, 2  # AVCOL_RANGE_MPEG, AVCOL_RANGE_JPEG
_HDR_CURVES = {16: "PQ", 18: "HLG"}  # H.273 transfer characteristics
_BICUBIC, _AREA, _ACCURATE = 0x4, 0x20, 0x2000 | 0x40000  # swscale: full chroma and accurate rounding


@dataclass(frozen=True)
class Colour:
    """How a stream's samples mean colours: matrix and range numbers of swscale, HDR curve name or empty, primaries (H.273)."""

    matrix: int
    range: int
    hdr: str = ""
    primaries: int = BT709_PRIMARIES
    peak: float = PEAK  # nit, the brightest that a PQ stream holds

    @property
    def is_sdr(self) -> bool:
        """Whether the signal is SDR BT.709 (or BT.601, whose primaries are close) as it stands."""
        return not self.hdr and self.primaries not in WIDE


def colour_of(frame: VideoFrame, context: VideoCodecContext) -> Colour:
    """The frame's colour as tagged in it or its stream; raises UnusableClip for a matrix that has no conversion here.

    Untagged pictures of 720 lines and more are BT.709, smaller ones BT.601; with an HDR curve or wide primaries, BT.2020.
    """
    hdr, primaries = _HDR_CURVES.get(int(context.color_trc), ""), int(context.color_primaries)
    if hdr and primaries in _UNTAGGED:
        primaries = BT2020
    matrix = int(frame.colorspace)
    matrix = _SAME.get(matrix, matrix)
    if matrix in _UNTAGGED:
        high = min(frame.width, frame.height) >= 720 or max(frame.width, frame.height) >= 1280
        matrix = BT2020 if primaries == BT2020 else BT709 if high else BT601
    if matrix not in _LUMA and not frame.format.is_rgb:
        raise UnusableClip(f"its colours are stored in a way that has no conversion here (H.273 matrix {matrix}); convert it to BT.709")
    if (hdr or primaries in WIDE) and max(component.bits for component in frame.format.components) > 16:
        raise UnusableClip("holds floating-point HDR; convert it to 10 or 12 bits")
    full = int(frame.color_range) == FULL or frame.format.name.startswith("yuvj")
    return Colour(matrix, FULL if full else _LIMITED, hdr, primaries, _peak(frame))


def side_data(frame: VideoFrame, kind: str) -> bytes:
    """The frame's side data of one kind (a name of PyAV's `Type`), empty if it has none."""
    from av.sidedata.sidedata import Type

    data = cast("Any", frame.side_data).get(Type[kind])
    return bytes(data) if data is not None else b""


def _peak(frame: VideoFrame) -> float:
    """The brightest light in nit: the lower of what the mastering display could show and what the content is said to reach."""
    found = []
    if data := side_data(frame, "CONTENT_LIGHT_LEVEL"):  # MaxCLL, MaxFALL
        found.append(float(struct.unpack_from("=I", data)[0]))
    if data := side_data(frame, "MASTERING_DISPLAY_METADATA"):  # after 9 fractions: maximum, whether primaries, whether luminance
        above, below, _, known = struct.unpack_from("=4i", data, 72)
        found.append(above / below if known and below else 0.0)
    return min((nit for nit in found if nit > 0), default=PEAK)


def to_rgb(frame: VideoFrame, colour: Colour, height: int, width: int) -> np.ndarray:
    """A frame as SDR RGB at another size, not rotated: [height, width, 3] uint8; transparent parts show `BACKGROUND`."""
    if not colour.is_sdr:
        return to_sdr(_signal(frame, colour, height, width), colour.hdr, colour.primaries, colour.peak)
    alpha = any(component.is_alpha for component in frame.format.components) or frame.format.has_palette
    if alpha:
        return resized(over_background(_converted(frame, colour, "rgba", frame.height, frame.width).to_ndarray()), height, width)
    if frame.format.is_rgb:
        return resized(frame.reformat(format="rgb24").to_ndarray(), height, width)
    return _merged(_converted(frame, colour, "gbrp", height, width), (2, 0, 1))  # planar RGB is what swscale is fast at


def over_background(pixels: np.ndarray) -> np.ndarray:
    """RGBA laid over `BACKGROUND`: [h, w, 4] uint8 -> [h, w, 3] uint8."""
    opacity = pixels[..., 3:].astype(np.uint16)
    return ((pixels[..., :3] * opacity + BACKGROUND * (255 - opacity) + 127) // 255).astype(np.uint8)


def _converted(frame: VideoFrame, colour: Colour, target: str, height: int, width: int) -> VideoFrame:
    """The frame in another format and size; RGB targets are full range, others keep matrix and range."""
    size = frame.height, frame.width
    flags = (_AREA if shrinks(size, height, width) else _BICUBIC) | _ACCURATE
    if frame.format.is_rgb or frame.format.has_palette:
        return frame.reformat(width, height, target, interpolation=flags)
    other = BT601 if colour.matrix == BT709 else BT709  # RGB has no matrix, but older PyAV skips the conversion if both are equal
    kept = target.startswith("yuv")
    return _unsited(frame).reformat(
        width, height, target, src_colorspace=colour.matrix, dst_colorspace=colour.matrix if kept else other,
        src_color_range=colour.range, dst_color_range=colour.range if kept else FULL, interpolation=flags,
    )  # fmt: skip


def _unsited(frame: VideoFrame) -> VideoFrame:
    """A copy whose chroma counts as centred, as it always did for PyAV before 17 and for ffmpeg before 8: one file, one result."""
    import av

    if frame.format.chroma_width(4) == 4 and frame.format.chroma_height(4) == 4:
        return frame
    copy = av.VideoFrame(frame.width, frame.height, frame.format.name)
    for target, source in zip(copy.planes, frame.planes, strict=True):
        used = min(target.line_size, source.line_size)
        _lines(target, np.uint8)[:, :used] = _lines(source, np.uint8)[:, :used]
    return copy


def _signal(frame: VideoFrame, colour: Colour, height: int, width: int) -> np.ndarray:
    """The frame's non-linear R'G'B' at its full depth: [height, width, 3] float32, 0…1."""
    import cv2

    bits = max(component.bits for component in frame.format.components)
    depth = f"{bits}le" if bits > 8 else ""
    if frame.format.is_rgb:
        planes = _converted(frame, colour, f"gbrp{depth}", frame.height, frame.width)
        return resized(_merged(planes, (2, 0, 1)).astype(np.float32) / np.float32((1 << bits) - 1), height, width)
    planes = _converted(frame, colour, f"yuv444p{depth}", height, width)
    return cv2.transform(_merged(planes, (0, 1, 2)).astype(np.float32), _code_matrix(colour, bits))


def _code_matrix(colour: Colour, bits: int) -> np.ndarray:
    """The affine matrix [3, 4] from Y'CbCr codes to R'G'B' in 0…1, ITU-R BT.2100 tables 6 and 9."""
    red, blue = _LUMA[colour.matrix]
    green = 1 - red - blue
    to_rgb = np.array([
        [1, 0, 2 * (1 - red)],
        [1, -2 * blue * (1 - blue) / green, -2 * red * (1 - red) / green],
        [1, 2 * (1 - blue), 0],
    ])  # fmt: skip
    unit, top = 1 << (bits - 8), (1 << bits) - 1
    black, luma, chroma = (16 * unit, 219 * unit, 224 * unit) if colour.range == _LIMITED else (0, top, top)
    scaled = to_rgb / [luma, chroma, chroma]
    return np.column_stack([scaled, -scaled @ [black, 128 * unit, 128 * unit]]).astype(np.float32)


def _merged(frame: VideoFrame, order: tuple[int, int, int]) -> np.ndarray:
    """Three planes of one size as [h, w, 3], uint8 or uint16."""
    import cv2

    kind = np.uint16 if frame.format.components[0].bits > 8 else np.uint8
    planes = [_lines(plane, kind)[:, : plane.width] for plane in frame.planes]
    return cv2.merge([planes[place] for place in order])


def _lines(plane: VideoPlane, kind: type[np.uint8 | np.uint16]) -> np.ndarray:
    """A plane's memory as lines with their padding, [h, samples]."""
    return np.frombuffer(cast("Any", plane), kind).reshape(plane.height, -1)
