"""Streaming decode: the wanted frames only, upright, scaled to cover and cropped to the centre as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .colour import to_rgb
from .probe import Probe, video_stream
from .sources.record import UnusableClip

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame

DECODER_FORMAT = 1  # raised whenever the same file and settings would give other pixels
_TOLERATED = 0.02  # share of wanted frames that may be missing inside a clip; they show the frame before


def decode_frames(
    path: Path, probe: Probe, wanted: Sequence[int], height: int, width: int, check: Callable[[], None]
) -> Iterator[np.ndarray]:
    """Frames `wanted` (ascending source indices, repeats allowed) one after the other, each [height, width, 3] uint8.

    `check` is called for every decoded frame and may raise to stop. Raises UnusableClip if the stream breaks off.
    """
    import av

    tally = _Tally(len(probe.times), set(wanted))
    try:
        with av.open(str(path)) as container:
            yield from _wanted(_decoded(container, probe), wanted, tally, lambda frame: _picture(frame, probe, height, width), check)
    except (av.FFmpegError, OSError) as error:
        raise UnusableClip(f"decoding fails after frame {tally.last + 1} of {tally.total} ({error})") from error


@dataclass
class _Tally:
    """How far decoding came, and which wanted frames never did."""

    total: int
    wanted: set[int]
    last: int = -1
    missing: set[int] = field(default_factory=set)

    def miss(self, index: int) -> None:
        """Notes a wanted frame that is not there; raises UnusableClip once there are too many."""
        self.missing.add(index)
        if self.last < 0 or len(self.missing) > max(1, _TOLERATED * len(self.wanted)):
            raise UnusableClip(f"decoding breaks off after frame {self.last + 1} of {self.total}")


def _wanted(
    decoded: Iterator[tuple[int, VideoFrame]],
    wanted: Sequence[int],
    tally: _Tally,
    picture: Callable[[VideoFrame], np.ndarray],
    check: Callable[[], None],
) -> Iterator[np.ndarray]:
    """Pictures of the wanted frames; one that is missing shows the frame before it, as a player does."""
    place, held = 0, None
    for tally.last, frame in decoded:
        check()
        while place < len(wanted) and wanted[place] < tally.last:
            tally.miss(wanted[place])
            yield picture(held or frame)
            place += 1
        if place < len(wanted) and wanted[place] == tally.last:
            shown = picture(frame)
            while place < len(wanted) and wanted[place] == tally.last:
                yield shown
                place += 1
        held = frame
        if place == len(wanted):
            return
    for index in wanted[place:]:
        tally.miss(index)
        assert held is not None  # with nothing decoded, `miss` has raised
        yield picture(held)


def fit(pixels: np.ndarray, display: tuple[int, int], height: int, width: int) -> np.ndarray:
    """A picture scaled to cover height × width and cropped to the centre, antialiased: [h, w, 3] -> [height, width, 3].

    `display` is the height and width the picture is shown at, which differs from its own where pixels are not square.
    """
    import cv2

    scale = max(height / display[0], width / display[1])
    covered = max(height, round(display[0] * scale)), max(width, round(display[1] * scale))
    if pixels.shape[:2] != covered:
        shrinks = covered[0] < pixels.shape[0] or covered[1] < pixels.shape[1]
        pixels = cv2.resize(pixels, covered[::-1], interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_CUBIC)
    top, left = (covered[0] - height) // 2, (covered[1] - width) // 2
    return pixels[top : top + height, left : left + width]


def _decoded(container: InputContainer, probe: Probe) -> Iterator[tuple[int, VideoFrame]]:
    """Decoded frames with their index in the probe, by presentation time where the container has one."""
    index_of = {tick: index for index, tick in enumerate(probe.ticks)}
    last = -1
    for frame in container.decode(video_stream(container)):
        found = None if probe.by_order or frame.pts is None else index_of.get(frame.pts)
        index = found if found is not None and found > last else last + 1
        if index >= len(probe.ticks):
            return
        last = index
        yield index, frame


def _picture(frame: VideoFrame, probe: Probe, height: int, width: int) -> np.ndarray:
    pixels = np.ascontiguousarray(np.rot90(to_rgb(frame, probe.colour), probe.rotation // 90))
    return fit(pixels, (probe.height, probe.width), height, width)
