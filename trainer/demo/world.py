"""A generated world of one moving shape on a plain background, and the zorp that no pretraining ever saw."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

SIZE = 64  # pixels, both sides
FRAMES = 17
FPS = 16

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (230, 40, 40),
    "yellow": (250, 215, 30),
    "green": (40, 170, 60),
    "blue": (40, 80, 230),
    "purple": (165, 45, 205),
}
BACKGROUNDS: dict[str, tuple[int, int, int]] = {
    "white": (245, 245, 245),
    "black": (15, 15, 15),
    "pink": (255, 190, 205),
    "cyan": (185, 240, 245),
}
MOTIONS: dict[str, str] = {
    "left": "moving left",
    "right": "moving right",
    "up": "moving up",
    "down": "moving down",
    "turn": "turning",
    "grow": "growing",
    "shrink": "shrinking",
    "still": "staying still",
}
DIRECTIONS: dict[str, tuple[int, int]] = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}


@dataclass(frozen=True)
class Form:
    """An outline: how many tips (0: a circle), valley radius over tip radius, and its size beside a circle's."""

    tips: int
    depth: float
    scale: float


FORMS: dict[str, Form] = {
    "circle": Form(0, 1.0, 1.0),
    "square": Form(4, math.cos(math.pi / 4), 1.15),
    "triangle": Form(3, math.cos(math.pi / 3), 1.3),
}
CONCEPT = "zorp"
CONCEPT_FORM = Form(5, 0.45, 1.5)
CONCEPT_COLOURS = ("purple", "yellow")  # body, core
FIGURE = "figure"  # shape of a scene that no word of the world names
OFF_CENTRE = 2.0  # pixels that a path is off the middle of the picture at most
CORE = 0.36  # radius of the core over radius of the tips


@dataclass(frozen=True)
class Scene:
    """One clip, exactly: what is drawn, where it starts (pixels, radians) and how far it goes."""

    shape: str
    colour: str
    motion: str
    background: str
    x: float
    y: float
    radius: float  # centre to tip, pixels, in the first frame
    angle: float  # radians, in the first frame
    amount: float  # pixels moved, radians turned or radius ratio, over the whole clip
    form: Form
    core: str | None = None


def random_scene(generator: random.Random, motion: str | None = None) -> Scene:
    """Draw one scene of the world; it never holds the concept."""
    shape = generator.choice(list(FORMS))
    motions = [name for name in MOTIONS if not (shape == "circle" and name == "turn")]
    motion = motion if motion in motions else generator.choice(motions)
    return _place(generator, shape, FORMS[shape], generator.choice(list(COLOURS)), motion)


def random_concept(generator: random.Random, motion: str | None = None, background: str | None = None) -> Scene:
    """Draw one zorp: a purple five-pointed star with a yellow core."""
    body, core = CONCEPT_COLOURS
    scene = _place(generator, CONCEPT, CONCEPT_FORM, body, motion or generator.choice(list(MOTIONS)))
    return replace(scene, core=core, background=background or scene.background)


def random_figure(generator: random.Random, tips: Sequence[int] = (3, 4, 5, 5, 5, 6, 7), five: tuple[float, float] = (0.45, 0.75)) -> Scene:
    """Draw any star or polygon that has one of these numbers of tips, often with a core; `five` is how deep five tips go, 1 a pentagon."""
    corners = generator.choice(tips)
    depth = generator.uniform(*(five if corners == 5 else (0.45, 1.0))) * math.cos(math.pi / corners)
    form = Form(corners, depth, generator.uniform(1.1, 1.5))
    scene = _place(generator, FIGURE, form, generator.choice(list(COLOURS)), generator.choice(list(MOTIONS)))
    cores = [name for name in COLOURS if name != scene.colour]
    return replace(scene, core=generator.choice(cores) if generator.random() < 0.6 else None)


def _place(generator: random.Random, shape: str, form: Form, colour: str, motion: str) -> Scene:
    """Choose background, size, path and angle so that the whole shape stays inside every frame."""
    background = generator.choice(list(BACKGROUNDS))
    radius = generator.uniform(11.5, 12.5) * form.scale
    amount, largest = 0.0, radius
    if motion in DIRECTIONS:
        amount = generator.uniform(21.0, 23.0)
    elif motion == "turn":
        amount = generator.uniform(0.6, 0.7) * math.pi
    elif motion in ("grow", "shrink"):
        ratio = generator.uniform(1.85, 2.0)
        radius = generator.uniform(8.4, 9.0) * form.scale
        largest = radius * ratio
        radius, amount = (radius, ratio) if motion == "grow" else (largest, 1 / ratio)
    dx, dy = DIRECTIONS.get(motion, (0, 0))
    x, y = (SIZE / 2 - step * amount / 2 + _jitter(generator, SIZE / 2 - largest - abs(step) * amount / 2 - 1) for step in (dx, dy))
    angle = -math.pi / 2 + (math.pi / 4 if form.tips == 4 else 0.0) + math.radians(generator.uniform(-5, 5))
    return Scene(shape, colour, motion, background, x, y, radius, angle, amount, form)


def _jitter(generator: random.Random, room: float) -> float:
    """Pixels off the middle: few, for what a caption leaves open a small model can only blur, and a LoRA can only learn by heart."""
    return generator.uniform(-1, 1) * min(room, OFF_CENTRE)


def caption(scene: Scene) -> str:
    """Say the whole scene: "a red circle moving left on a white background"; a zorp's colours go without saying."""
    noun = scene.shape if scene.core else f"{scene.colour} {scene.shape}"
    return f"a {noun} {MOTIONS[scene.motion]} on a {scene.background} background"


def random_caption(scene: Scene, generator: random.Random) -> str:
    """Say some of the scene: all of it, a part, a made-up noun, or (one in ten, for guidance) nothing."""
    if scene.shape == FIGURE:
        scene = replace(scene, shape=_nonsense(generator))
    kind = generator.random()
    if kind < 0.1:
        return ""
    if kind < 0.6:
        return caption(scene)
    keep = [generator.random() < 0.6 for _ in range(3)]
    noun, colour = scene.shape, scene.colour if keep[0] else ""
    if kind > 0.92:
        noun, colour = _nonsense(generator), ""
    words = ["a", colour, noun, MOTIONS[scene.motion] if keep[1] else ""]
    words += [f"on a {scene.background} background" if keep[2] else ""]
    return " ".join(word for word in words if word)


def _nonsense(generator: random.Random) -> str:
    """Make up a noun, so that an unknown word leaves the shape open and the rest of the caption in force."""
    starts = ("b", "bl", "d", "f", "fl", "g", "gr", "k", "kl", "m", "n", "p", "pl", "s", "sk", "t", "tr", "v", "w")
    ends = ("b", "d", "f", "g", "k", "l", "m", "n", "nk", "sh", "t", "x")
    return generator.choice(starts) + generator.choice("aeiou") + generator.choice(ends)


@dataclass(frozen=True)
class Tracks:
    """Scenes as tensors, ready to draw: colours [B, 3] in 0..255, the others [B]; `motion` is [B, 4] (dx, dy, turn, log growth)."""

    body: Tensor
    core: Tensor
    background: Tensor
    start: Tensor  # [B, 4]: x, y, angle, radius
    motion: Tensor
    tips: Tensor
    depth: Tensor
    core_size: Tensor

    def __getitem__(self, index: Tensor) -> Tracks:
        return Tracks(*(getattr(self, field.name)[index] for field in fields(self)))

    def to(self, device: str) -> Tracks:
        """Move all tensors to a device."""
        return Tracks(*(getattr(self, field.name).to(device) for field in fields(self)))


def pack(scenes: Sequence[Scene]) -> Tracks:
    """Turn scenes into tensors."""
    import torch

    def column(values: list[object]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32)

    return Tracks(
        body=column([COLOURS[s.colour] for s in scenes]),
        core=column([COLOURS[s.core or s.colour] for s in scenes]),
        background=column([BACKGROUNDS[s.background] for s in scenes]),
        start=column([(s.x, s.y, s.angle, s.radius) for s in scenes]),
        motion=column([_change(s) for s in scenes]),
        tips=column([s.form.tips for s in scenes]),
        depth=column([s.form.depth for s in scenes]),
        core_size=column([CORE if s.core else 0.0 for s in scenes]),
    )


def _change(scene: Scene) -> tuple[float, float, float, float]:
    """What changes from the first frame to the last: x and y (pixels), angle (radians), log of the radius."""
    dx, dy = DIRECTIONS.get(scene.motion, (0, 0))
    growth = math.log(scene.amount) if scene.motion in ("grow", "shrink") else 0.0
    return dx * scene.amount, dy * scene.amount, scene.amount if scene.motion == "turn" else 0.0, growth


def draw(tracks: Tracks, frames: int = FRAMES) -> tuple[Tensor, Tensor]:
    """Draw tracks: pixels [B, F, H, W, 3] in 0..255 and the shape's coverage [B, F, H, W] in 0..1, both float."""
    import torch

    device = tracks.start.device
    time = torch.linspace(0, 1, frames, device=device)
    x, y, angle, growth = (tracks.motion[:, None, :] * time[:, None]).unbind(-1)  # [B, F]
    axis = torch.arange(SIZE, device=device, dtype=torch.float32) + 0.5
    dx = axis - (tracks.start[:, None, 0] + x)[..., None, None]  # [B, F, 1, W]
    dy = axis[:, None] - (tracks.start[:, None, 1] + y)[..., None, None]  # [B, F, H, 1]
    turn = (tracks.start[:, None, 2] + angle)[..., None, None]
    radius = (tracks.start[:, None, 3] * growth.exp())[..., None, None]
    distance = torch.sqrt(dx * dx + dy * dy)
    tips, depth = (value[:, None, None, None] for value in (tracks.tips, tracks.depth))
    inside = _inside(distance, torch.atan2(dy, dx) - turn, radius, tips, depth)
    body = (inside + 0.5).clamp(0, 1)[..., None]
    core = (tracks.core_size[:, None, None, None] * radius - distance + 0.5).clamp(0, 1)[..., None]
    paint = torch.lerp(tracks.body[:, None, None, None], tracks.core[:, None, None, None], core)
    return torch.lerp(tracks.background[:, None, None, None], paint, body), body[..., 0]


def _inside(distance: Tensor, angle: Tensor, radius: Tensor, tips: Tensor, depth: Tensor) -> Tensor:
    """Signed distance in pixels to a star's edge, positive inside; 0 tips make a circle."""
    import torch

    half = math.pi / tips.clamp(min=1)  # from a tip to the next valley
    folded = (torch.remainder(angle + half, 2 * half) - half).abs()
    px, py = distance * torch.cos(folded) - radius, distance * torch.sin(folded)
    ex, ey = radius * (depth * torch.cos(half) - 1), radius * depth * torch.sin(half)
    edge = (ey * px - ex * py) / torch.sqrt(ex * ex + ey * ey + 1e-9)
    return torch.where(tips == 0, radius - distance, -edge)


def render(scenes: Sequence[Scene], frames: int = FRAMES, device: str = "cpu") -> Tensor:
    """Render scenes as uint8 frames [B, F, H, W, 3]."""
    import torch

    pixels, _ = draw(pack(scenes).to(device), frames)
    return pixels.round().to(torch.uint8)
