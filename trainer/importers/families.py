"""Model families as other trainers name them, and what an import needs to know of each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_SIZE = r"(?<!\d)(?<!\d\.){}b(?![a-z\d])"  # of a model, in a name: 14B, A14B, 1.3B, 1_3B


@dataclass(frozen=True)
class Family:
    """A family; `trained` is its name in our job, empty if this version cannot train it, and then `instead` says more."""

    title: str
    trained: str = ""
    frames: int = 0  # frame counts are frames · n + 1; 0 if that is not known here
    sides: int = 0  # px that height and width are multiples of; 0 if not known here
    spatial: int = 0  # px per latent position of its VAE
    temporal: int = 0  # frames per latent frame of its VAE
    shortest: int = 0  # frames of the shortest video, where it is longer than the rule's second
    images: bool = False  # whether it makes images only
    boundaries: tuple[float, ...] = ()  # noise levels at which a second expert takes over in its releases
    guided: bool = False  # whether it is fed a guidance in training
    first_frame_optional: bool = False  # whether it can start from a picture and from none
    shifts_by_size: bool = False  # whether its own shift of the noise levels grows with the size
    compiles: bool = True  # whether its blocks can be compiled
    blocks: tuple[tuple[str, int, int], ...] = ()  # size in its name, empty for any; blocks, and those of a second kind
    instead: str = ""

    def rounded(self, frames: int, height: int, width: int) -> tuple[int, int, int]:
        """The size a run makes of this one: frames down to the rule, sides to the nearest multiple, halves up."""
        if self.images:
            frames = 1
        elif self.frames:
            frames = max((frames - 1) // self.frames * self.frames + 1, self.shortest if frames > 1 else 1)
        if self.sides:
            height, width = (max((2 * side + self.sides) // (2 * self.sides), 1) * self.sides for side in (height, width))
        return frames, height, width

    def block_counts(self, names: Iterable[str]) -> tuple[int, int] | None:
        """Its blocks, and those of a second kind, in the size that the names of its files say; None where they say none, or several."""
        said = " ".join(names).lower()
        sizes = [(_SIZE.format(size.replace(".", "[._]")) if size else "", first, second) for size, first, second in self.blocks]
        found = {(first, second) for size, first, second in sizes if re.search(size, said)}
        return found.pop() if len(found) == 1 else None

    @property
    def frame_rule(self) -> str:
        """The frame counts that it takes, in words."""
        return "1 frame" if self.images else f"{self.frames}n+1 frames" + (f" from {self.shortest}" if self.shortest else "")

    def __str__(self) -> str:
        return self.title


_WAN_BLOCKS = (("1.3", 30, 0), ("14", 40, 0), ("5", 30, 0))
_WAN = Family("Wan", "wan", frames=4, sides=16, spatial=8, temporal=4, boundaries=(0.875, 0.9), blocks=_WAN_BLOCKS)
_WAN_5B = Family("Wan 2.2 5B", "wan", frames=4, sides=32, spatial=16, temporal=4, first_frame_optional=True, blocks=(("", 30, 0),))
_HUNYUAN = Family("HunyuanVideo", "hunyuan_video", frames=4, sides=16, spatial=8, temporal=4, guided=True, blocks=(("", 20, 40),))
_HUNYUAN_15 = Family("HunyuanVideo-1.5", "hunyuan_video_15", frames=4, sides=16, spatial=16, temporal=4, blocks=(("", 54, 0),))
_FRAMEPACK = Family("FramePack", "framepack", frames=36, sides=16, spatial=8, temporal=4, shortest=37, guided=True, blocks=(("", 20, 40),))
_LTX_BLOCKS = (("2", 28, 0), ("13", 48, 0))
_LTX = Family(
    "LTX-Video", "ltx_video", frames=8, sides=32, spatial=32, temporal=8, first_frame_optional=True, shifts_by_size=True, blocks=_LTX_BLOCKS
)
_COGVIDEOX = Family("CogVideoX", "cogvideox", frames=8, sides=16, spatial=8, temporal=4, blocks=(("2", 30, 0), ("5", 42, 0)))
_MOCHI = Family("Mochi 1", "mochi", frames=6, sides=16, spatial=8, temporal=6, blocks=(("", 48, 0),))
_HIDREAM = Family(
    "HiDream-I1, which makes images", "hidream", frames=1, sides=16, spatial=8, temporal=1, images=True, compiles=False,
    blocks=(("", 16, 32),),
)  # fmt: skip

# The first pattern found in a name's lower-case letters and digits holds.
FAMILIES: tuple[tuple[str, Family], ...] = (
    ("framepack", _FRAMEPACK),
    ("skyreels", Family("SkyReels")),
    ("hunyuan(image|dit|3d|custom|avatar|world|gamecraft|videoavatar|videofoley)|hyworld", Family("a Hunyuan model of another kind")),
    ("hunyuanvideo15", _HUNYUAN_15),
    ("hunyuan", _HUNYUAN),
    ("wan.*(fun|vace|animate|s2v|camera|control|humo)", Family("Wan with a control input")),
    ("wan22.*5b", _WAN_5B),
    ("wan", _WAN),
    (r"ltx(v|video)?2(?!b)", Family("LTX-2", instead="its transformer needs sound and a Gemma text encoder")),
    ("ltx", _LTX),
    ("cogvideox.*(fun|control)", Family("CogVideoX with a control input")),
    ("cogvideox", _COGVIDEOX),
    ("mochi", _MOCHI),
    ("hidream[oe]1", Family("HiDream-E1 and O1")),
    ("hidream", _HIDREAM),
)  # fmt: skip


def find_family(name: str) -> Family | None:
    """The family that a trainer's model type, a hub id or a file name speaks of, or None."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return next((family for pattern, family in FAMILIES if re.search(pattern, plain)), None)
