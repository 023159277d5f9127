"""Every family and variant as an ordinary diffusers folder of a few thousand random weights: `ALL`, which the family tests run on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image

    from .capture import Point

Size = tuple[int, int, int]  # frames, height, width


@dataclass(frozen=True)
class Tiny:
    """A variant, with two sizes of unlike length to train at; `writer` and `points` are module:function below tests.tiny.

    `writer` takes a folder and writes the model. `points` takes that folder, a prompt, a size and pictures by condition,
    and gives what the family's diffusers pipeline computes at some steps, see `capture.Point`.
    """

    family: str
    variant: str
    writer: str
    points: str
    sizes: tuple[Size, Size] = ((5, 32, 32), (9, 32, 32))
    learning_rate: float = 3e-2  # at which the loss falls within 60 steps

    def write(self, folder: Path) -> Path:
        """Writes the model and returns its folder."""
        return _function(self.writer)(folder)

    def pipeline_points(self, folder: Path, prompt: str, size: Size, pictures: dict[str, Image]) -> list[Point]:
        """What the pipeline computes for one video, guidance off or fed in as the model's default."""
        return _function(self.points)(folder, prompt, size, pictures)

    def __str__(self) -> str:
        return f"{self.family} {self.variant}"


def _function(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    return getattr(import_module(f"{__name__}.{module}"), function)


COGVIDEOX: tuple[Size, Size] = ((9, 32, 32), (17, 32, 48))
ALL = [
    Tiny("wan", "2.1 t2v", "wan:write_tiny_wan", "wan:pipeline_points"),
    Tiny("wan", "2.1 i2v", "wan:write_tiny_i2v", "wan:pipeline_points"),
    Tiny("wan", "2.1 flf2v", "wan:write_tiny_flf2v", "wan:pipeline_points"),
    Tiny("wan", "2.2 a14b t2v", "wan:write_tiny_a14b_t2v", "wan:pipeline_points"),
    Tiny("wan", "2.2 a14b i2v", "wan:write_tiny_a14b_i2v", "wan:pipeline_points"),
    Tiny("wan", "2.2 ti2v", "wan:write_tiny_ti2v", "wan:pipeline_points", sizes=((5, 64, 64), (9, 64, 64))),
    Tiny("hunyuan_video", "t2v", "hunyuan_video:write_t2v", "hunyuan_video:pipeline_points"),
    Tiny("hunyuan_video", "i2v latent concat", "hunyuan_video:write_i2v_concat", "hunyuan_video:pipeline_points"),
    Tiny("hunyuan_video", "i2v token replace", "hunyuan_video:write_i2v_replace", "hunyuan_video:pipeline_points"),
    Tiny("ltx_video", "0.9", "ltx_video:write_tiny_ltx", "ltx_video:image_points", ((9, 64, 64), (17, 64, 64))),
    Tiny("ltx_video", "0.9.5", "ltx_video:write_tiny_ltx_095", "ltx_video:condition_points", ((9, 64, 64), (17, 64, 64))),
    Tiny("cogvideox", "2b", "cogvideox:write_2b", "cogvideox:pipeline_points", COGVIDEOX),
    Tiny("cogvideox", "5b", "cogvideox:write_5b", "cogvideox:pipeline_points", COGVIDEOX),
    Tiny("cogvideox", "5b i2v", "cogvideox:write_5b_i2v", "cogvideox:pipeline_points", ((9, 32, 32), (17, 32, 32))),
    Tiny("cogvideox", "1.5-5b t2v", "cogvideox:write_15", "cogvideox:pipeline_points", COGVIDEOX),
    Tiny("cogvideox", "1.5-5b i2v", "cogvideox:write_15_i2v", "cogvideox:pipeline_points", COGVIDEOX),
    Tiny("framepack", "i2v backward", "framepack:write_framepack", "framepack:pipeline_points", ((37, 32, 32), (73, 32, 32))),
    Tiny("framepack", "i2v forward", "framepack:write_forward", "framepack:forward_points", ((37, 32, 32), (73, 32, 32))),
]
