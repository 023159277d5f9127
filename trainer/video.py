"""Writing video files."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from .files import complete_or_absent

if TYPE_CHECKING:
    from torch import Tensor


def write_mp4(frames: Tensor, file: Path, fps: float, crf: int = 12, pixels: str = "yuv420p") -> None:
    """Writes [F, H, W, 3] uint8 as H.264 mp4 that browsers play; odd sizes lose their last row or column.

    `crf` is x264's quality, 0 (lossless) to 51; `pixels` its format (not all browsers play "yuv444p"). The file appears
    complete or not at all. The same frames give the same file.
    """
    import av

    height, width = frames.shape[1] // 2 * 2, frames.shape[2] // 2 * 2  # 4:2:0 chroma needs even sizes
    with complete_or_absent(file) as beside, av.open(str(beside), "w", format="mp4", options={"movflags": "faststart"}) as container:
        options = {"crf": str(crf), "preset": "fast", "x264-params": "cpu-independent=1"}  # else its lookahead differs by chance
        stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1001), options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, pixels
        for frame in frames[:, :height, :width].contiguous().numpy():
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
