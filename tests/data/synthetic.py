"""Tiny clips whose frames can be told apart, and a family of fake encoders that count what they encode."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import torch

from trainer.events import EventLog, Notice
from trainer.models.base import FamilySpec, FrameRule, TextEncoder
from trainer.models.files import DiffusersFolder

LEVELS = 8  # grey step between neighbouring frames


def grey(index: int, height: int = 48, width: int = 64) -> np.ndarray:
    """A flat frame whose level names its index (up to 24)."""
    return np.full((height, width, 3), 30 + LEVELS * index % 200, np.uint8)


def index_of(frame: torch.Tensor) -> int:
    """Which `grey` frame this is."""
    return round((frame.float().mean().item() - 30) / LEVELS)


def write_clip(
    path: Path,
    frames: int | Sequence[np.ndarray],
    rate: Fraction | int = 16,
    codec: str = "libx264",
    pts_ms: Sequence[int] = (),
    pix_fmt: str = "",
) -> Path:
    """Writes a clip; `frames` is a count of grey frames or pictures, `pts_ms` gives each its own time."""
    pictures = [grey(i) for i in range(frames)] if isinstance(frames, int) else frames
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate)
        stream.height, stream.width = pictures[0].shape[:2]
        stream.pix_fmt = pix_fmt or ("rgb8" if codec == "gif" else "yuv420p")
        if codec == "libx264":
            stream.options = {"crf": "4", "preset": "ultrafast"}
        if pts_ms:
            stream.codec_context.time_base = Fraction(1, 1000)
        for index, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format=stream.pix_fmt)
            frame.pts, frame.time_base = (pts_ms[index], Fraction(1, 1000)) if pts_ms else (index, 1 / Fraction(rate))
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def write_tagged(path: Path, colour: tuple[int, int, int], pix_fmt: str = "yuv420p", codec: str = "libx264", **tags: int) -> Path:
    """Writes one frame of a colour, converted and tagged by `tags`: color_trc, color_primaries, colorspace, color_range."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=16, options={"crf": "1"} if codec == "libx264" else {})
        stream.height, stream.width, stream.pix_fmt = 48, 64, pix_fmt
        for name, value in tags.items():
            setattr(stream.codec_context, name, value)
        picture = av.VideoFrame.from_ndarray(np.full((48, 64, 3), colour, np.uint8), format="rgb24")
        frame = picture.reformat(format=pix_fmt, dst_colorspace=tags.get("colorspace"), dst_color_range=tags.get("color_range", 1))
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def turn_by_display_matrix(path: Path) -> None:
    """Marks an MP4 as shown a quarter turn clockwise, as phones do: the track header's matrix, not the pixels."""
    data = bytearray(path.read_bytes())
    start = data.index(b"tkhd") + 44
    data[start : start + 36] = struct.pack(">9i", 0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30)
    path.write_bytes(data)


SPEC = FamilySpec(
    family="fake", variant="tiny", frame_rule=FrameRule(4, 1), size_multiple=16, fps=16.0, latent_channels=3, latent_stride=(4, 8, 8),
    text_length=32, train_shift=1.0, sample_shift=1.0, guidance=5.0, default_bucket=(17, 48, 64),
)  # fmt: skip


def write_model(folder: Path) -> None:
    """Files that stand for the encoders' weights."""
    for part, content in (("vae", b"v1"), ("text_encoder", b"t1"), ("tokenizer", b"k1")):
        (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / part / "model.safetensors").write_bytes(content)


class FakeFamily:
    """Encodes a clip as every fourth frame, averaged over 8 × 8 blocks, and a text as its bytes."""

    def __init__(self, folder: Path) -> None:
        self.files, self.spec, self.vae_dtype = DiffusersFolder(folder), SPEC, torch.float32
        self.encoded: list[torch.Tensor] = []
        self.texts: list[str] = []

    def encode_video(self, vae: torch.nn.Module, frames: torch.Tensor) -> dict[str, torch.Tensor]:
        self.encoded.append(frames)
        pooled = torch.nn.functional.avg_pool2d(frames[::4].permute(0, 3, 1, 2).float(), 8)
        return {"latents": pooled.permute(1, 0, 2, 3).contiguous()}

    def section(self, encoding: dict[str, torch.Tensor], number: int) -> dict[str, torch.Tensor]:
        return encoding

    def encode_text(self, encoder: object, text: str) -> dict[str, torch.Tensor]:
        self.texts.append(text)
        return {"embeds": torch.tensor(list(text.encode()) or [0]).float()}


class FakeEncoders:
    """Counts how often each encoder was loaded."""

    def __init__(self) -> None:
        self.compute = SimpleNamespace(device=torch.device("cpu"), dtype=torch.float32)
        self.tiled = False
        self.loaded: list[str] = []
        self.parked: list[str] = []

    def vae(self) -> torch.nn.Module:
        self.loaded.append("vae")
        return torch.nn.Identity()

    def text_encoder(self) -> object:
        self.loaded.append("text")
        return TextEncoder(str, torch.nn.Identity())

    def park_vae(self) -> None:
        self.parked.append("vae")

    def park_image_encoder(self) -> None:
        pass

    def park_text_encoder(self) -> None:
        self.parked.append("text")


class Watcher:
    """A listener that keeps the notices and can ask for a cancel."""

    def __init__(self, cancel_when: Callable[[object], bool] = lambda event: False) -> None:
        self.notices: list[str] = []
        self.cancel_when, self.cancelled = cancel_when, False

    def emit(self, event: object) -> None:
        self.cancelled = self.cancelled or self.cancel_when(event)
        if isinstance(event, Notice):
            self.notices.append(f"{event.where}: {event.text}")

    def request(self) -> str | None:
        return "cancel" if self.cancelled else None


def watched(watcher: Watcher) -> EventLog:
    """A log heard by the watcher."""
    return EventLog(watcher)
