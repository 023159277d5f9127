"""Which frames of a clip become examples, by the sampling strategy; what is random is drawn by the clip's content and the variant."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from .. import draws
from ..frame_settings import FrameSampling
from ..job import WindowSettings
from .fit import CENTRE
from .timeline import Timeline
from .windows import window_starts

_PLACES = {"centre": CENTRE, "left": (0.5, 0.0), "right": (0.5, 1.0), "top": (0.0, 0.5), "bottom": (1.0, 0.5)}


@dataclass(frozen=True)
class Take:
    """One variant of a clip: the file's frames, and the examples among them."""

    indices: tuple[int, ...]  # the file's frames, ascending
    starts: tuple[int, ...]  # of each example, in `indices`
    order: tuple[int, ...] = ()  # of the frames inside each example; empty: as they are
    place: tuple[float, float] = CENTRE  # of the crop: shares of what is cut off that lie above and to the left


@dataclass(frozen=True)
class Drawing:
    """What a clip's random draws are keyed by, apart from the variant: the run's seed and the clip's content."""

    seed: int
    content: str

    def key(self, purpose: str, variant: int) -> tuple[int | str, ...]:
        """The key of one draw."""
        return self.seed, purpose, variant, self.content


def takes(line: Timeline, frames: int, keyframes: Sequence[int], sampling: FrameSampling, crop: str, drawing: Drawing) -> tuple[Take, ...]:
    """The clip's variants, each with examples of `frames` frames that lie within one scene; the longest scene holds at least one.

    `keyframes` are those of the file; `crop` is a crop position. Variants that come out alike are one.
    """
    made = []
    for variant in range(_variants(sampling, crop)):
        places, starts = _chosen(line, frames, keyframes, sampling, drawing, variant)
        made.append(_take(line, places, starts, frames, sampling, crop, drawing, variant))
    return tuple(dict.fromkeys(made))


def windowed_takes(
    line: Timeline, reach: int, windows: WindowSettings, sampling: FrameSampling, crop: str, drawing: Drawing
) -> tuple[Take, ...]:
    """The clip's variants, each with the windows that lie within its first `reach` frames and within one scene; none if none does."""
    scenes = [range(scene.start, min(scene.stop, reach)) for scene in line.scenes if scene.start < reach]
    starts = tuple(scene.start + start for scene in scenes for start in window_starts(len(scene), windows.size, windows.stride))
    if not starts:
        return ()
    made = [
        _take(line, range(reach), starts, windows.size, sampling, crop, drawing, variant) for variant in range(_variants(sampling, crop))
    ]
    return tuple(dict.fromkeys(made))


def _variants(sampling: FrameSampling, crop: str) -> int:
    return sampling.variants if sampling.is_random or crop == "random" else 1


def _chosen(
    line: Timeline, frames: int, keyframes: Sequence[int], sampling: FrameSampling, drawing: Drawing, variant: int
) -> tuple[Sequence[int], tuple[int, ...]]:
    """Places on the timeline that are used, and the starts of the examples among them."""
    scenes = [scene for scene in line.scenes if len(scene) >= frames]
    if sampling.crops:
        scenes = [_part(scenes, frames, drawing, variant)]
    strategy = sampling.frame_sample_strategy
    if strategy == "uniform":
        scene = max(scenes, key=len)
        return [scene[(2 * k * (len(scene) - 1) + frames - 1) // (2 * max(frames - 1, 1))] for k in range(frames)], (0,)
    if strategy == "head":
        starts = [scenes[0].start]
    elif strategy == "random":
        spots = [start for scene in scenes for start in scene[: len(scene) - frames + 1]]
        starts = [spots[draws.choice(len(spots), *drawing.key("start", variant))]]
    elif strategy == "keyframe":
        starts = [start for scene in scenes for start in _at_keyframes(line.source, scene, keyframes, frames)]
        starts = starts or [scenes[0].start]
    else:
        stride = frames if strategy == "chunk" else sampling.frame_stride
        starts = [start for scene in scenes for start in scene[: len(scene) - frames + 1 : stride]]
    first = starts[0]
    return range(first, starts[-1] + frames), tuple(start - first for start in starts)


def _part(scenes: Sequence[range], frames: int, drawing: Drawing, variant: int) -> range:
    """A random run of at least half a scene and at least `frames` frames."""
    scene = scenes[draws.choice(len(scenes), *drawing.key("scene", variant))]
    least = max(frames, math.ceil(len(scene) / 2))
    length = least + draws.choice(len(scene) - least + 1, *drawing.key("length", variant))
    start = draws.choice(len(scene) - length + 1, *drawing.key("crop", variant))
    return scene[start : start + length]


def _at_keyframes(source: Sequence[int], scene: range, keyframes: Sequence[int], frames: int) -> list[int]:
    """Starts of the examples that begin at a keyframe of the file, or the first frame shown after it, and do not overlap."""
    starts: list[int] = []
    for key in keyframes or (0,):
        start = bisect_left(source, key)
        if start in scene and start + frames <= scene.stop and (not starts or start >= starts[-1] + frames):
            starts.append(start)
    return starts


def _take(
    line: Timeline, places: Sequence[int], starts: tuple[int, ...], frames: int, sampling: FrameSampling, crop: str,
    drawing: Drawing, variant: int,
) -> Take:  # fmt: skip
    indices = [line.source[place] for place in places]
    if sampling.frame_dropout_probability:
        firsts = {scene.start for scene in line.scenes}
        chances = draws.uniforms(len(indices), *drawing.key("frame dropout", variant))
        for k in range(1, len(indices)):
            if chances[k] < sampling.frame_dropout_probability and places[k] not in firsts:
                indices[k] = indices[k - 1]
    order: tuple[int, ...] = ()
    if sampling.frame_shuffling:
        order = tuple(draws.permutation(frames, *drawing.key("shuffle", variant)))
    elif sampling.reverses and draws.uniform(*drawing.key("reverse", variant)) < 0.5:
        order = tuple(reversed(range(frames)))
    place = _PLACES.get(crop) or (draws.uniform(*drawing.key("crop above", variant)), draws.uniform(*drawing.key("crop left", variant)))
    return Take(tuple(indices), starts, order if frames > 1 else (), place)
