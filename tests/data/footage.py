"""Test clips beyond plain grey ones: moving pictures, exact Y'CbCr codes, colour tags, encoder settings, and what ffmpeg makes of them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from trainer.data.decode import decode_frames
from trainer.data.probe import Probe, probe


def scene(index: int, height: int = 96, width: int = 128) -> np.ndarray:
    """Colours that run smoothly over the picture and move from frame to frame: [height, width, 3] uint8."""
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x / 17 + phase + index / 3) + np.cos(y / 13 - phase * 2 + index / 5) for phase in (0.0, 1.1, 2.3)]
    return np.stack([127.5 + 55 * wave for wave in waves], axis=-1).astype(np.uint8)


def codes(bits: int, height: int = 48, width: int = 64, seed: int = 0) -> list[np.ndarray]:
    """Random Y', Cb and Cr of limited range in flat blocks of 8 × 8, at full resolution."""
    draw, unit = np.random.default_rng(seed), 1 << (bits - 8)
    grid = (height // 8, width // 8)
    blocks = [draw.integers(low * unit, high * unit, grid) for low, high in ((16, 236), (100, 156), (100, 156))]
    return [np.kron(block, np.ones((8, 8), np.int64)) for block in blocks]


def frame_of(planes: Sequence[np.ndarray], pix_fmt: str) -> av.VideoFrame:
    """A frame that holds these planes, given at full resolution and thinned where the format has fewer samples."""
    height, width = planes[0].shape
    frame = av.VideoFrame(width, height, pix_fmt)
    kind = np.uint16 if frame.format.components[0].bits > 8 else np.uint8
    for target, source in zip(frame.planes, planes, strict=False):
        rows = np.frombuffer(target, kind).reshape(target.height, -1)
        rows[:, : target.width] = source[:: height // target.height, :: width // target.width]
    return frame


def encode(
    path: Path,
    frames: Sequence[np.ndarray | av.VideoFrame],
    codec: str,
    pix_fmt: str,
    rate: int = 16,
    options: dict[str, str] | None = None,
    tags: dict[str, int] | None = None,
    prepare: Callable[[av.VideoStream], None] = lambda stream: None,
) -> Path:
    """Writes RGB pictures or ready frames; `tags` are color_trc, color_primaries, colorspace, color_range of the stream."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=Fraction(rate), options=options or {})
        first = frames[0]
        stream.height, stream.width = first.shape[:2] if isinstance(first, np.ndarray) else (first.height, first.width)
        stream.pix_fmt = pix_fmt
        for name, value in (tags or {}).items():
            setattr(stream.codec_context, name, value)
        prepare(stream)
        for index, given in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(given, format="rgb24") if isinstance(given, np.ndarray) else given
            if frame.format.name != pix_fmt:
                frame = frame.reformat(format=pix_fmt, dst_colorspace=(tags or {}).get("colorspace", 5), dst_color_range=1)
            frame.pts, frame.time_base = index, Fraction(1, rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def decoded(path: Path, wanted: Sequence[int] | None = None, size: tuple[int, int] | None = None) -> np.ndarray:
    """What the library makes of a clip: all frames at native size, if not told otherwise, [n, h, w, 3] int."""
    clip = probe(path)
    wanted = range(len(clip.times)) if wanted is None else wanted
    height, width = size or (clip.height, clip.width)
    return np.stack(list(decode_frames(path, clip, wanted, height, width, lambda: None))).astype(int)


def ffmpeg(*words: object) -> bytes:
    """Runs ffmpeg, giving its standard output; skips the test where it is not installed."""
    if shutil.which("ffmpeg") is None:
        pytest.skip("ffmpeg is not installed")
    return subprocess.run(["ffmpeg", "-v", "error", "-y", *map(str, words)], capture_output=True, check=True).stdout


def by_ffmpeg(path: Path, clip: Probe, matrix: str = "") -> np.ndarray:
    """What ffmpeg makes of every frame, told matrix and range, with chroma centred: [n, h, w, 3] int."""
    flags = "accurate_rnd+full_chroma_int+bicubic"
    told = f":in_color_matrix={matrix}:in_range={'pc' if clip.colour.range == 2 else 'tv'}" if matrix else ""
    with av.open(str(path)) as container:
        kind = container.streams.video[0].format  # ffmpeg 8 and later would go by the chroma position in the stream
        told += ":in_h_chr_pos=128" * (kind.chroma_width(4) < 4) + ":in_v_chr_pos=128" * (kind.chroma_height(4) < 4)
    picture = ("-vf", f"scale=flags={flags}{told},format=rgb24", "-sws_flags", flags, "-fps_mode", "passthrough")
    data = ffmpeg("-threads", 1, "-i", path, *picture, "-f", "rawvideo", "-pix_fmt", "rgb24", "-")
    return np.frombuffer(data, np.uint8).reshape(-1, clip.height, clip.width, 3).astype(int)


def within(ours: np.ndarray, theirs: np.ndarray, levels: int = 2) -> float:
    """Share of pixels whose three values all differ by no more than `levels`."""
    assert ours.shape == theirs.shape
    return float((np.abs(ours - theirs).max(axis=-1) <= levels).mean())


def damaged(data: bytes, start: int, length: int) -> bytes:
    """The bytes with a stretch overwritten by a pattern."""
    pattern = bytes((7 * place + 13) % 256 for place in range(length))
    return data[:start] + pattern + data[start + length :]
