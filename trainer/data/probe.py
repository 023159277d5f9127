"""What a clip really holds: presentation times by demuxing, size as displayed, rotation, colour."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from ..files import reason, regular
from .colour import BT709, FULL, Colour, colour_of, side_data
from .pictures import is_picture, picture_facts
from .retime import constant_rate
from .sources.record import UnusableClip
from .stream import decoder_of, frames_of, opened, video_stream

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

PROBE_FORMAT = 2  # raised whenever the same file would give another probe
_FIELD_ORDERS = (2, 3, 4, 5)  # AV_FIELD_TT, BB, TB, BT
_KEYED = ("h264", "hevc", "vp8", "vp9", "libvpx", "libvpx-vp9", "av1", "libdav1d", "prores", "mjpeg")  # keyframes need nothing before them
_INDEXED = ("mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm")  # containers with presentation times that can be gone to
_DOLBY = ("dvh1", "dvhe", "dva1", "dvav", "dav1")  # sample entries of Dolby Vision


@dataclass(frozen=True)
class Probe:
    """A readable clip. Index i of `ticks` and `times` is the i-th frame shown."""

    ticks: tuple[int, ...]  # presentation times in the stream's time base
    times: tuple[Fraction, ...]  # s, from 0
    end: Fraction  # s, when the last frame leaves the screen; 0 for a still picture, which has no duration
    height: int  # px, after rotation and with square pixels
    width: int
    rotation: int  # degrees, counter-clockwise, a multiple of 90
    colour: Colour
    codec: str
    by_order: bool  # the container has no presentation times: frames are matched by decoding order
    mirrored: bool = False  # left and right are exchanged before it is rotated
    interlaced: bool = False
    keys: tuple[int, ...] = ()  # frames that decoding may start at; empty if only the first
    picture: bool = False  # Pillow reads it

    @property
    def fps(self) -> float:
        """Mean frame rate, frames/s; 1 for a still picture."""
        return float(len(self.times) / self.end) if self.end else 1.0


def probe(path: Path) -> Probe:
    """Reads a clip's packets and first frame, or a picture's header; raises UnusableClip saying why it cannot be read."""
    import av

    try:
        if regular(path).st_size == 0:
            raise UnusableClip("the file is empty")
        if is_picture(path):
            return _of_picture(path)
        with opened(path) as container:
            stamps = _Stamps.of(container)
        with opened(path) as container:  # opened anew: not every container seeks back to its start
            return _of_stream(container, stamps)
    except (av.FFmpegError, OSError, ValueError, EOFError) as error:
        raise UnusableClip(f"cannot be read ({reason(error)})") from error


def _of_picture(path: Path) -> Probe:
    facts = picture_facts(path)
    times = (Fraction(0), *accumulate(facts.durations))
    count = max(1, len(facts.durations))
    return Probe(
        tuple(range(count)), times[:count], times[-1], facts.height, facts.width, 0, Colour(BT709, FULL), facts.format, True, picture=True
    )


@dataclass(frozen=True)
class _Stamps:
    """Presentation times of all frames, ascending, in units of `tick` seconds; `last` is the last frame's duration, 0 if unknown."""

    ticks: tuple[int, ...]
    last: int
    tick: Fraction
    rates: tuple[Fraction, ...]  # constant rates the container may mean, frames/s
    by_order: bool
    keys: tuple[int, ...] = ()  # frames whose packets are keyframes, if times and order can be trusted

    @classmethod
    def of(cls, container: InputContainer) -> _Stamps:
        """Reads all packets, keeping their times only; those cut off by the end of the file do not count."""
        stream = video_stream(container)
        rates = tuple(Fraction(rate) for rate in (stream.average_rate, stream.guessed_rate, stream.base_rate) if rate)
        packets = [_stamp(packet) for packet in container.demux(stream) if packet.size and not packet.is_discard and not packet.is_corrupt]
        if not packets:
            raise UnusableClip("has no video frames")
        stamps = sorted((pts, duration) for pts, duration, _ in packets if pts is not None)
        marks = [(place, pts) for place, (pts, _, key) in enumerate(packets) if key and pts is not None]
        if len(stamps) < len(packets) or _restarts(marks) or not stream.time_base:
            return cls(tuple(range(len(packets))), 1, 1 / (rates or (Fraction(25),))[0], rates, True)
        ticks = tuple(pts for pts, _ in stamps)
        by_order = container.format.name == "avi"  # which stores decoding times only
        keyed = container.format.name in _INDEXED and len(set(ticks)) == len(ticks)
        places = {tick: index for index, tick in enumerate(ticks)} if keyed else {}
        return cls(ticks, stamps[-1][1], stream.time_base, rates, by_order, tuple(places[pts] for _, pts in marks) if keyed else ())


def _restarts(marks: list[tuple[int, int]]) -> bool:
    """Whether times run backwards, as in badly joined files: `marks` are place and time of each keyframe's packet."""
    return any(late < early or (late == early and after > before + 1) for (before, early), (after, late) in pairwise(marks))


def _stamp(packet: Packet[VideoStream]) -> tuple[int | None, int, bool]:
    """Presentation time and duration in ticks, and whether it is a keyframe."""
    return packet.pts, packet.duration or 0, packet.is_keyframe


def _of_stream(container: InputContainer, stamps: _Stamps) -> Probe:
    stream = video_stream(container)
    context = decoder_of(stream)
    context.thread_count = 1  # for one frame: more threads would take in more first
    codec = context.name
    frame = next(frames_of(container, stream, context, frozenset()), None)
    if frame is None:
        raise UnusableClip(f"its codec '{codec}' gave no frame; convert it to H.264")
    _refuse_dolby(frame, context)
    times, end = _timeline(stamps)
    rotation, mirrored = _orientation(frame)
    height, width = _display_size(frame, stream.sample_aspect_ratio, rotation)
    interlaced = bool(frame.interlaced_frame) or getattr(stream.codec_context, "field_order", 0) in _FIELD_ORDERS
    keys = stamps.keys if codec in _KEYED and not interlaced else ()
    return Probe(
        stamps.ticks, times, end, height, width, rotation, colour_of(frame, stream.codec_context), codec, stamps.by_order,
        mirrored, interlaced, keys,
    )  # fmt: skip


def _refuse_dolby(frame: VideoFrame, context: VideoCodecContext) -> None:
    """Raises UnusableClip for Dolby Vision that only its own decoders show right (profile 5): it names no colours of its own."""
    dolby = str(context.codec_tag).lower() in _DOLBY or bool(side_data(frame, "DOVI_METADATA"))
    if dolby and int(context.color_trc) in (0, 2):
        raise UnusableClip("is Dolby Vision without a picture for other players (profile 5); convert it to HDR10 or SDR")


def _timeline(stamps: _Stamps) -> tuple[tuple[Fraction, ...], Fraction]:
    """Presentation times in seconds from 0 and the end; a constant rate is taken exactly."""
    times = tuple((value - stamps.ticks[0]) * stamps.tick for value in stamps.ticks)
    rate = constant_rate(times, stamps.tick, stamps.rates)
    if rate is not None and (len(times) > 1 or not stamps.last):
        return tuple(index / rate for index in range(len(times))), len(times) / rate
    gaps = [after - before for before, after in pairwise(times)]
    return times, max(times) + (stamps.last * stamps.tick or (median(gaps) if gaps else Fraction(1, 25)))


def _orientation(frame: VideoFrame) -> tuple[int, bool]:
    """Degrees counter-clockwise, a multiple of 90, and whether left and right are exchanged before: the display matrix.

    Its rows are (a, b, u), (c, d, v), (x, y, w): a stored point (p, q) is shown at (a p + c q + x, b p + d q + y).
    """
    data = side_data(frame, "DISPLAYMATRIX")
    if not data:
        return 0, False
    a, b, _, c, d = struct.unpack_from("=5i", data)
    mirrored = a * d - b * c < 0
    right, down = (-a if mirrored else a), c  # where the first row's direction and the columns' go, horizontally
    if abs(right) >= abs(down):
        return (0 if right >= 0 else 180), mirrored
    return (90 if down > 0 else 270), mirrored


def _display_size(frame: VideoFrame, pixel_aspect: Fraction | None, rotation: int) -> tuple[int, int]:
    """Height and width as shown: pixels made square by widening, then turned."""
    width, height = frame.width, frame.height
    if pixel_aspect:
        width = max(1, round(width * pixel_aspect))
    return (width, height) if rotation % 180 else (height, width)
