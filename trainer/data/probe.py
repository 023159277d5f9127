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
            stamps = _Stamps.of(container)
        with av.open(str(path)) as container:  # opened anew: not every container seeks back to its start
            return _probe(container, stamps)
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


@dataclass(frozen=True)
class _Stamps:
    """Presentation times of all frames, ascending, in units of `tick` seconds; `last` is the last frame's duration, 0 if unknown."""

    ticks: tuple[int, ...]
    last: int
    tick: Fraction
    rates: tuple[Fraction, ...]  # constant rates the container may mean, frames/s
    by_order: bool

    @classmethod
    def of(cls, container: InputContainer) -> _Stamps:
        """Reads all packets, keeping their times only."""
        stream = video_stream(container)
        rates = tuple(Fraction(rate) for rate in (stream.average_rate, stream.guessed_rate, stream.base_rate) if rate)
        stamps, count = [], 0
        for packet in container.demux(stream):
            if packet.size and not packet.is_discard:
                count += 1
                if packet.pts is not None:
                    stamps.append((packet.pts, packet.duration or 0))
        if not count:
            raise UnusableClip("has no video frames")
        if len(stamps) < count or not stream.time_base:
            return cls(tuple(range(count)), 1, 1 / (rates or (Fraction(25),))[0], rates, True)
        stamps.sort()
        by_order = container.format.name == "avi"  # which stores decoding times only
        return cls(tuple(pts for pts, _ in stamps), stamps[-1][1], stream.time_base, rates, by_order)


def _probe(container: InputContainer, stamps: _Stamps) -> Probe:
    stream = video_stream(container)
    codec = stream.codec_context.name
    frame = next(iter(container.decode(stream)), None)
    if frame is None:
        raise UnusableClip(f"its codec '{codec}' gave no frame; convert it to H.264")
    times, end = _timeline(stamps)
    rotation = round(frame.rotation / 90) * 90 % 360
    height, width = _display_size(frame, stream.sample_aspect_ratio, rotation)
    return Probe(
        stamps.ticks, times, end, height, width, rotation, colour_of(frame, int(stream.codec_context.color_trc)), codec, stamps.by_order
    )


def _timeline(stamps: _Stamps) -> tuple[tuple[Fraction, ...], Fraction]:
    """Presentation times in seconds from 0 and the end; a constant rate is taken exactly."""
    times = tuple((value - stamps.ticks[0]) * stamps.tick for value in stamps.ticks)
    rate = constant_rate(times, stamps.tick, stamps.rates)
    if rate is not None and (len(times) > 1 or not stamps.last):
        return tuple(index / rate for index in range(len(times))), len(times) / rate
    gaps = [after - before for before, after in pairwise(times)]
    return times, max(times) + (stamps.last * stamps.tick or (median(gaps) if gaps else Fraction(1, 25)))


def _display_size(frame: VideoFrame, pixel_aspect: Fraction | None, rotation: int) -> tuple[int, int]:
    """Height and width as shown: pixels made square by widening, then turned."""
    width, height = frame.width, frame.height
    if pixel_aspect:
        width = max(1, round(width * pixel_aspect))
    return (width, height) if rotation % 180 else (height, width)


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
