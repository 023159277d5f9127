"""Model families as other trainers name them, and the sizes they take."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """What an import needs to know of a family; `trained` is its name in our job, empty if this version cannot train it."""

    title: str
    trained: str = ""
    frames: int = 0  # frame counts are frames · n + 1; 0 if that is not known here
    sides: int = 0  # px that height and width are multiples of; 0 if not known here
    fps: float = 0.0  # native frames/s
    spatial: int = 0  # px per latent position of its VAE
    temporal: int = 0  # frames per latent frame of its VAE
    boundaries: tuple[float, ...] = ()  # noise levels at which a second expert takes over in its releases

    def rounded(self, frames: int, height: int, width: int) -> tuple[int, int, int]:
        """The size a run makes of this one: frames down to the rule, sides to the nearest multiple, halves up."""
        if self.frames:
            frames = max((frames - 1) // self.frames, 0) * self.frames + 1
        if self.sides:
            height, width = (max((2 * side + self.sides) // (2 * self.sides), 1) * self.sides for side in (height, width))
        return frames, height, width

    def __str__(self) -> str:
        return self.title


# The first pattern found in a name's lower-case letters and digits holds. Sizes: trainers.md section 1e, model cards.
FAMILIES: tuple[tuple[str, Family], ...] = (
    ("framepack", Family("FramePack", frames=4, sides=16, fps=30, spatial=8, temporal=4)),
    ("hunyuanvideo15", Family("HunyuanVideo 1.5")),
    ("hunyuan", Family("HunyuanVideo", frames=4, sides=16, fps=24, spatial=8, temporal=4)),
    ("wan.*(fun|vace|animate|s2v|camera)", Family("Wan with a control input", frames=4, sides=16, fps=16, spatial=8, temporal=4)),
    ("wan22.*5b", Family("Wan 2.2 5B", "wan", frames=4, sides=32, fps=24, spatial=16, temporal=4)),
    ("wan", Family("Wan", "wan", frames=4, sides=16, fps=16, spatial=8, temporal=4, boundaries=(0.875, 0.9))),
    ("ltx2|ltxvideo2", Family("LTX-2")),
    ("ltx", Family("LTX-Video", frames=8, sides=32, fps=25, spatial=32, temporal=8)),
    ("cogvideox", Family("CogVideoX", spatial=8, temporal=4)),
    ("mochi", Family("Mochi 1", frames=6, sides=16, fps=30, spatial=8, temporal=6)),
    ("hidream", Family("HiDream-I1, an image model", sides=16, spatial=8)),
)


def find_family(name: str) -> Family | None:
    """The family that a trainer's model type, a hub id or a file name speaks of, or None."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return next((family for pattern, family in FAMILIES if re.search(pattern, plain)), None)
