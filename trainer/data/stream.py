"""A clip's coded video: which decoder reads it, and its frames in order, skipping work that no wanted frame needs."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import regular
from .sources.record import UnusableClip

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.filter import Graph
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from .probe import Probe

_FORMATS = (  # containers that hold all of a clip themselves; playlists and the like make FFmpeg open other files and addresses
    "mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", "avi", "gif", "asf", "av1", "dv", "flv", "h264", "hevc", "ivf", "m4v", "mpeg", "mpegts",
    "mpegvideo", "mxf", "nut", "obu", "ogg", "apng", "png_pipe", "jpeg_pipe", "webp_pipe",
)  # fmt: skip
_WITH_ALPHA = {"vp8": "libvpx", "vp9": "libvpx-vp9"}  # decoders that read the alpha channel of WebM
_LEAP = 24  # frames; going to a keyframe pays from about so many frames ahead


@contextmanager
def opened(path: Path) -> Iterator[InputContainer]:
    """The one way to a clip's container: nothing but this file is ever read for it.

    Raises UnusableClip if it is of a format that may name other files, OSError or av.FFmpegError if it cannot be read.
    """
    import av

    regular(path)
    options = {"protocol_whitelist": "file", "format_whitelist": ",".join(_FORMATS)}
    try:
        container = av.open(f"file:{path.absolute()}", options=options)
    except av.ArgumentError as error:
        found = "cannot be read: it is damaged, or no clip but something else, such as a list of other files"
        raise UnusableClip(found, "Give the clip itself, as MP4, MOV, MKV, WebM, AVI or GIF.") from error
    with container:
        yield container


def video_stream(container: InputContainer) -> VideoStream:
    """The container's video stream, never its cover picture; raises UnusableClip if there is none or no decoder for it."""
    from av.video.stream import VideoStream

    stream = container.streams.best("video")
    if not isinstance(stream, VideoStream):
        raise UnusableClip("has no video stream")
    if stream.codec_context is None:
        raise UnusableClip("its codec has no decoder here; convert it to H.264")
    return stream


def decoder_of(stream: VideoStream) -> VideoCodecContext:
    """The stream's decoder with threads on; for WebM with transparency one that reads it, where there is one."""
    import av
    from av.video.codeccontext import VideoCodecContext

    context = stream.codec_context
    alpha = any(name.lower() == "alpha_mode" and value == "1" for name, value in stream.metadata.items())
    name = _WITH_ALPHA.get(context.codec.name) if alpha else None
    if name in av.codecs_available:
        other = av.CodecContext.create(name, "r")
        assert isinstance(other, VideoCodecContext)
        context = other
    context.thread_type = "AUTO"
    return context


def frames_of(packets: Iterable[Packet[VideoStream]], context: VideoCodecContext, needless: frozenset[int]) -> Iterator[VideoFrame]:
    """Decoded frames of demuxed packets; damaged ones are left out, as are those at `needless` times that no other needs.

    `needless` must be empty unless the codec is H.264, whose decoder then skips frames that are never referred to.
    """
    for packet in packets:
        if not packet.size:  # dropped frames of AVI, and the end mark
            continue
        if needless:
            context.skip_frame = "NONREF" if packet.pts in needless else "DEFAULT"
        yield from _whole(context, packet)
    yield from _whole(context, None)


def _whole(context: VideoCodecContext, packet: Packet[VideoStream] | None) -> Iterator[VideoFrame]:
    from av.error import InvalidDataError

    try:
        frames = context.decode(packet)
    except InvalidDataError:
        return
    yield from (frame for frame in frames if not frame.is_corrupt)


def decoded(path: Path, probe: Probe, wanted: Sequence[int]) -> Generator[tuple[int, VideoFrame], None, None]:
    """Frames with their index in the probe, ascending, up to the last wanted one; those not wanted may be left out.

    Goes to a later keyframe when the next wanted frame lies far ahead. Should that frame not come out there, decodes
    from the start instead.
    """
    last = -1
    try:
        for last, frame in _pass(path, probe, sorted(set(wanted)), probe.keys):
            yield last, frame
    except _Astray:
        for index, frame in _pass(path, probe, sorted({index for index in wanted if index > last}), ()):
            if index > last:
                yield index, frame


class _Astray(Exception):
    """A wanted frame did not come out after going to its keyframe."""


def _pass(path: Path, probe: Probe, needed: Sequence[int], keys: Sequence[int]) -> Iterator[tuple[int, VideoFrame]]:
    with opened(path) as container:
        stream = video_stream(container)
        context = decoder_of(stream)
        rest, last = deque(needed), -1
        needless = frozenset(probe.ticks).difference(probe.ticks[index] for index in needed) if _skips(probe) else frozenset()
        while rest:
            key = _key_before(keys, rest[0])
            if key > last + _LEAP:
                container.seek(probe.ticks[key], stream=stream)
                context.flush_buffers()
                last = key - 1
            else:
                key = -1
            frames = _placed(frames_of(container.demux(stream), context, needless), probe, last)
            for last, frame in deinterlaced(frames, stream) if probe.interlaced else frames:
                if key >= 0 and last > rest[0]:
                    raise _Astray
                yield last, frame
                while rest and rest[0] <= last:
                    rest.popleft()
                    key = -1
                if not rest or _key_before(keys, rest[0]) > last + _LEAP:
                    break
            else:
                if key >= 0:
                    raise _Astray
                return


def _skips(probe: Probe) -> bool:
    return probe.codec == "h264" and bool(probe.keys)


def _key_before(keys: Sequence[int], index: int) -> int:
    """The last keyframe up to a frame, -1 if there is none."""
    place = bisect_right(keys, index)
    return keys[place - 1] if place else -1


def _placed(frames: Iterable[VideoFrame], probe: Probe, last: int) -> Iterator[tuple[int, VideoFrame]]:
    """Frames after index `last` with their index: by presentation time where the container has one, else one after the other."""
    first = {tick: index for index, tick in reversed(list(enumerate(probe.ticks)))}
    for frame in frames:
        index = None if probe.by_order or frame.pts is None else first.get(frame.pts, -1 if probe.keys else None)
        if index is None:
            index = last + 1
        elif index <= last:
            if last + 1 == len(probe.ticks) or probe.ticks[last + 1] != frame.pts:
                continue  # before the place gone to, out of order, or not shown
            index = last + 1  # one of several frames with one time
        if index >= len(probe.ticks):
            return
        last = index
        yield index, frame


def deinterlaced(frames: Iterable[tuple[int, VideoFrame]], stream: VideoStream) -> Iterator[tuple[int, VideoFrame]]:
    """The same frames, each made whole from its first field by FFmpeg's bwdif; progressive ones pass as they are."""
    from av.filter import Graph

    graph, waiting = Graph(), deque[int]()
    source, sink = graph.add_buffer(template=stream), graph.add("buffersink")
    graph.link_nodes(source, graph.add("bwdif", "mode=send_frame:deint=interlaced"), sink).configure()
    for index, frame in frames:
        waiting.append(index)
        graph.vpush(frame)
        yield from _pulled(graph, waiting)
    graph.vpush(None)
    yield from _pulled(graph, waiting)


def _pulled(graph: Graph, waiting: deque[int]) -> Iterator[tuple[int, VideoFrame]]:
    from av.error import BlockingIOError as NotYet
    from av.error import EOFError as AtEnd

    while waiting:
        try:
            frame = graph.vpull()
        except (NotYet, AtEnd):
            return
        yield waiting.popleft(), frame
