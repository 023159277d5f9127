"""Streaming decode: the wanted frames only, upright, scaled to cover and cropped as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from .colour import to_rgb
from .fit import CENTRE, covering, cropped, fit
from .pictures import picture_frames
from .probe import Probe
from .sources.record import UnusableClip
from .stream import decoded

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

DECODER_FORMAT = 2  # raised whenever the same file and settings would give other pixels
_TOLERATED = 0.02  # share of wanted frames that may be missing inside a clip; they show the frame before
Frame = TypeVar("Frame")


def decode_frames(
    path: Path, probe: Probe, wanted: Sequence[int], height: int, width: int, check: Callable[[], None],
    place: tuple[float, float] = CENTRE,
) -> Iterator[np.ndarray]:  # fmt: skip
    """Frames `wanted` (ascending source indices, repeats allowed) one after the other, each [height, width, 3] uint8.

    `place` says what the crop keeps: the shares of what is cut off that lie above and to the left of it.
    `check` is called for every decoded frame and may raise to stop. Raises UnusableClip if the stream breaks off.
    """
    import av

    tally = _Tally(len(probe.times), set(wanted))
    if probe.picture:
        yield from _wanted(picture_frames(path, max(wanted)), wanted, tally, lambda image: _fitted(image, height, width, place), check)
        return
    try:
        with closing(decoded(path, probe, wanted)) as frames:
            yield from _wanted(frames, wanted, tally, lambda frame: _upright(frame, probe, height, width, place), check)
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
            if index > self.last:
                raise UnusableClip(f"decoding breaks off after frame {self.last + 1} of {self.total}")
            raise UnusableClip(f"frame {min(self.missing) + 1} of {self.total} and others are damaged; repair or convert the file")


def _wanted(
    decoded: Iterable[tuple[int, Frame]],
    wanted: Sequence[int],
    tally: _Tally,
    picture: Callable[[Frame], np.ndarray],
    check: Callable[[], None],
) -> Iterator[np.ndarray]:
    """Pictures of the wanted frames; one that is missing shows the frame before it, as a player does."""
    place, held = 0, None
    for tally.last, frame in decoded:
        check()
        while place < len(wanted) and wanted[place] < tally.last:
            tally.miss(wanted[place])
            yield picture(frame if held is None else held)
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


def _upright(frame: VideoFrame, probe: Probe, height: int, width: int, place: tuple[float, float]) -> np.ndarray:
    """A frame as displayed, covering height × width and cropped."""
    covered = covering((probe.height, probe.width), height, width)
    pixels = to_rgb(frame, probe.colour, *(covered[::-1] if probe.rotation % 180 else covered))
    if probe.mirrored:
        pixels = pixels[:, ::-1]
    return cropped(np.rot90(pixels, probe.rotation // 90), height, width, place)


def _fitted(picture: np.ndarray, height: int, width: int, place: tuple[float, float]) -> np.ndarray:
    return fit(picture, (picture.shape[0], picture.shape[1]), height, width, place)
