"""Streaming decode: the wanted frames only, upright, scaled to cover and cropped to the centre as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .colour import to_rgb
from .probe import Probe, video_stream
from .sources.record import UnusableClip

if TYPE_CHECKING:
    import torch
    from av.container import InputContainer
    from av.video.frame import VideoFrame

DECODER_FORMAT = 1  # raised whenever the same file and settings would give other pixels
_TOLERATED = 0.02  # share of wanted frames that may be missing inside a clip; they show the frame before


def decode_frames(path: Path, probe: Probe, wanted: Sequence[int], height: int, width: int, check: Callable[[], None]) -> torch.Tensor:
    """Frames `wanted` (ascending source indices, repeats allowed) as [F, height, width, 3] uint8.

    `check` is called for every decoded frame and may raise to stop. Raises UnusableClip if the stream breaks off.
    """
    import av

    frames, filled, missing = np.empty((len(wanted), height, width, 3), np.uint8), 0, set[int]()
    held: VideoFrame | None = None
    last = -1
    try:
        with av.open(str(path)) as container:
            for last, frame in _decoded(container, probe):
                check()
                while filled < len(wanted) and wanted[filled] < last:
                    missing.add(wanted[filled])
                    frames[filled] = _picture(held or frame, probe, height, width)
                    filled += 1
                if filled < len(wanted) and wanted[filled] == last:
                    picture = _picture(frame, probe, height, width)
                    while filled < len(wanted) and wanted[filled] == last:
                        frames[filled] = picture
                        filled += 1
                held = frame
                if filled == len(wanted):
                    break
            if held is not None and filled < len(wanted):
                missing.update(wanted[filled:])
                frames[filled:] = _picture(held, probe, height, width)
    except (av.FFmpegError, OSError) as error:
        raise UnusableClip(f"decoding fails after frame {last + 1} of {len(probe.times)} ({error})") from error
    if held is None or len(missing) > max(1, _TOLERATED * len(set(wanted))):
        raise UnusableClip(f"decoding ends after frame {last + 1} of {len(probe.times)}; {len(missing)} needed frames are missing")
    return _as_tensor(frames)


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


def _as_tensor(frames: np.ndarray) -> torch.Tensor:
    import torch

    return torch.from_numpy(frames)
