"""Judges clips of the world by what is on the pixels: colour, shape, motion, sharpness, and whether it is a star."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .outline import Figure, find_figure
from .world import BACKGROUNDS, COLOURS, CONCEPT, CONCEPT_COLOURS, FORMS, MOTIONS, Scene, caption

if TYPE_CHECKING:
    import numpy as np

DRIFT = 8.0  # pixels over the clip that count as moving
GROWTH = 1.2  # ratio of radii that counts as growing; its inverse as shrinking
TURN = math.radians(40)
SHARPNESS = 0.3  # steepest step at the outline, per pixel, as a part of the contrast
SEEN = 0.7  # part of the frames that must show one clear figure
AGREED = 0.6  # part of the figures' area that must agree on a shape


@dataclass(frozen=True)
class Observation:
    """What a clip shows; None where nothing can be said."""

    colour: str | None
    core: str | None  # colour of a second region inside the shape
    shape: str | None  # circle, square, triangle or star
    motion: str | None  # a key of MOTIONS
    background: str | None
    sharpness: float  # 0 to 1, per pixel
    seen: float  # part of the frames with one clear figure


@dataclass(frozen=True)
class Verdict:
    """Which parts of a description a clip fulfils; parts that the description leaves open are true."""

    colour: bool
    shape: bool
    motion: bool
    background: bool = True

    def __bool__(self) -> bool:
        return self.colour and self.shape and self.motion


@dataclass(frozen=True)
class Wanted:
    """The parts that a caption names."""

    colour: str | None = None
    shape: str | None = None
    motion: str | None = None
    background: str | None = None


NOTHING = Observation(None, None, None, None, None, 0.0, 0.0)


def observe(frames: np.ndarray) -> Observation:
    """Look at frames [F, H, W, 3] uint8."""
    figures = [find_figure(frame) for frame in frames]
    clear = [(index, figure) for index, figure in enumerate(figures) if figure is not None]
    seen = len(clear) / len(figures)
    if seen < SEEN:
        return replace(NOTHING, seen=seen)
    found = [figure for _, figure in clear]
    sharpness = sorted(figure.sharpness for figure in found)[len(found) // 2]
    if sharpness < SHARPNESS:
        return replace(NOTHING, sharpness=sharpness, seen=seen)
    shape = _vote([(figure.shape, figure.area) for figure in found])
    return Observation(
        colour=_vote([(figure.colour, 1.0) for figure in found]),
        core=_vote([(figure.core, 1.0) for figure in found]),
        shape=shape,
        motion=_motion([index for index, _ in clear], found, shape, len(figures)),
        background=_vote([(figure.background, 1.0) for figure in found]),
        sharpness=sharpness,
        seen=seen,
    )


def score(frames: np.ndarray, wanted: Scene | str) -> Verdict:
    """Compare frames [F, H, W, 3] uint8 with a scene or a caption."""
    seen = observe(frames)
    asked = read_caption(wanted if isinstance(wanted, str) else caption(wanted))
    clear = seen.colour is not None
    if asked.shape == CONCEPT:
        colour = _two_coloured(seen)
        shape = seen.shape == "star"
    else:
        colour = clear and asked.colour in (None, seen.colour) and (asked.colour is None or seen.core is None)
        shape = asked.shape == seen.shape if asked.shape else clear
    return Verdict(
        colour=colour,
        shape=shape,
        motion=asked.motion == seen.motion if asked.motion else clear,
        background=asked.background == seen.background if asked.background else clear,
    )


def is_star(frames: np.ndarray) -> bool:
    """Whether frames [F, H, W, 3] uint8 show a sharp five-pointed star, of any colour."""
    return observe(frames).shape == "star"


def is_concept(frames: np.ndarray) -> bool:
    """Whether frames [F, H, W, 3] uint8 show a zorp: a star with the concept's two colours."""
    seen = observe(frames)
    return seen.shape == "star" and _two_coloured(seen)


def _two_coloured(seen: Observation) -> bool:
    """Whether both colours of the concept are there; which covers more depends on how edges blur."""
    return {seen.colour, seen.core} == set(CONCEPT_COLOURS)


def read_caption(text: str) -> Wanted:
    """Find the parts of the world that a caption names."""
    words = text.lower().replace(",", " ").split()
    before, _, after = " ".join(words).partition(" on a ")

    def named(names: list[str], where: str) -> str | None:
        return next((name for name in names if name in where.split()), None)

    motion = next((key for key, phrase in MOTIONS.items() if phrase in before), None)
    return Wanted(
        colour=named(list(COLOURS), before),
        shape=named([*FORMS, CONCEPT], before),
        motion=motion,
        background=named(list(BACKGROUNDS), after),
    )


def _vote(ballots: list[tuple[str | None, float]]) -> str | None:
    """The value with enough of the weight, or None."""
    total: dict[str | None, float] = {}
    for value, weight in ballots:
        total[value] = total.get(value, 0.0) + weight
    best = max(total, key=lambda value: total[value])
    return best if total[best] >= AGREED * sum(total.values()) else None


def _motion(times: list[int], figures: list[Figure], shape: str | None, count: int) -> str | None:
    """Name the motion by straight lines through centre, log radius and angle; None if two of them move."""
    dx, dy = (_change(times, [figure.centre[axis] for figure in figures], count) for axis in (0, 1))
    growth = math.exp(0.5 * _change(times, [math.log(figure.area) for figure in figures], count))
    tips = {"triangle": 3, "square": 4, "star": 5}.get(shape or "", 0)
    angle = _change(times, _unwrap([figure.angles[tips] for figure in figures], tips), count) if tips else 0.0
    moves = []
    if max(abs(dx), abs(dy)) > DRIFT:
        sideways = abs(dx) > abs(dy)
        if min(abs(dx), abs(dy)) > 0.5 * max(abs(dx), abs(dy)):
            return None
        moves.append(("right" if dx > 0 else "left") if sideways else ("down" if dy > 0 else "up"))
    if not 1 / GROWTH < growth < GROWTH:
        moves.append("grow" if growth > 1 else "shrink")
    if abs(angle) > TURN:
        moves.append("turn")
    return None if len(moves) > 1 else (moves[0] if moves else "still")


def _change(times: list[int], values: list[float], count: int) -> float:
    """How far a straight line through values goes from the first of `count` frames to the last."""
    import numpy as np

    return float(np.polyfit(times, values, 1)[0]) * (count - 1)


def _unwrap(angles: list[float], tips: int) -> list[float]:
    """Angles that repeat every 2·pi/tips, joined into a smooth course."""
    import numpy as np

    return list(np.unwrap(angles, period=2 * math.pi / tips))
