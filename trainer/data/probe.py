"""What a clip really holds: presentation times by demuxing, size as displayed, rotation, colour."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from .colour import Colour, colour_of
from .retime import constant_rate
from .sources.record import UnusableClip

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream


@dataclass(frozen=True)
class Probe:
    """A readable clip. Index i of `ticks` and `times` is the i-th frame shown."""

    ticks: tuple[int, ...]  # presentation times in the stream's time base
    times: tuple[Fraction, ...]  # s, from 0
    end: Fraction  # s, when the last frame leaves the screen
    height: int  # px, after rotation and with square pixels
    width: int
    rotation: int  # degrees, counter-clockwise, a multiple of 90
    colour: Colour
    codec: str
    by_order: bool  # the container has no presentation times: frames are matched by decoding order

    @property
    def fps(self) -> float:
        """Mean frame rate, frames/s."""
        return float(len(self.times) / self.end)


def probe(path: Path) -> Probe:
    """Reads a clip's packets and first frame; raises UnusableClip saying why it cannot be read."""
    import av

    try:
        if path.stat().st_size == 0:
            raise UnusableClip("the file is empty")
        with av.open(str(path)) as container:
            return _probe(container)
    except (av.FFmpegError, OSError, ValueError, EOFError) as error:
        raise UnusableClip(f"cannot be read ({_reason(error)})") from error


def video_stream(container: InputContainer) -> VideoStream:
    """The container's video stream, never its cover picture; raises UnusableClip if there is none or no decoder for it."""
    from av.video.stream import VideoStream

    stream = container.streams.best("video")
    if not isinstance(stream, VideoStream):
        raise UnusableClip("has no video stream")
    if stream.codec_context is None:
        raise UnusableClip("its codec has no decoder here; convert it to H.264")
    stream.thread_type = "AUTO"
    return stream


def _probe(container: InputContainer) -> Probe:
    stream = video_stream(container)
    packets = [packet for packet in container.demux(stream) if packet.size and not packet.is_discard]
    if not packets:
        raise UnusableClip("has no video frames")
    rates = [Fraction(rate) for rate in (stream.average_rate, stream.guessed_rate, stream.base_rate) if rate]
    tick = stream.time_base or 1 / (rates or [Fraction(25)])[0]
    stamps = [(packet.pts, packet.duration or 0) for packet in packets if packet.pts is not None]
    by_order = container.format.name == "avi" or len(stamps) < len(packets)  # AVI stores decoding times only
    if len(stamps) < len(packets):
        stamps, tick = [(index, 1) for index in range(len(packets))], 1 / (rates or [Fraction(25)])[0]
    stamps.sort()
    ticks = tuple(pts for pts, _ in stamps)
    times, end = _timeline(ticks, stamps[-1][1], tick, rates)
    codec = stream.codec_context.name
    frame = _first_frame(container, stream, codec)
    rotation = round(frame.rotation / 90) * 90 % 360
    height, width = _display_size(frame, stream.sample_aspect_ratio, rotation)
    return Probe(ticks, times, end, height, width, rotation, colour_of(frame), codec, by_order)


def _timeline(ticks: tuple[int, ...], last: int, tick: Fraction, rates: list[Fraction]) -> tuple[tuple[Fraction, ...], Fraction]:
    """Presentation times in seconds from 0 and the end; a constant rate is taken exactly."""
    times = tuple((value - ticks[0]) * tick for value in ticks)
    rate = constant_rate(times, tick, rates)
    if rate is not None and (len(times) > 1 or not last):
        return tuple(index / rate for index in range(len(times))), len(times) / rate
    gaps = [after - before for before, after in pairwise(times)]
    return times, max(times) + (last * tick or (median(gaps) if gaps else Fraction(1, 25)))


def _first_frame(container: InputContainer, stream: VideoStream, codec: str) -> VideoFrame:
    container.seek(0)
    for frame in container.decode(stream):
        return frame
    raise UnusableClip(f"its codec '{codec}' gave no frame; convert it to H.264")


def _display_size(frame: VideoFrame, pixel_aspect: Fraction | None, rotation: int) -> tuple[int, int]:
    """Height and width as shown: pixels made square by widening, then turned."""
    width, height = frame.width, frame.height
    if pixel_aspect:
        width = max(1, round(width * pixel_aspect))
    return (width, height) if rotation % 180 else (height, width)


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
