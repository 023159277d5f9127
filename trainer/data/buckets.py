"""Buckets: the sizes clips are trained at, rounded to the family's rule and chosen per clip."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..errors import Problem, fail
from ..job import Bucket
from ..models.base import FamilySpec
from ..size_settings import ClipSizes

_RATIOS = (1.0, 5 / 4, 4 / 3, 3 / 2, 16 / 9, 2.0, 21 / 9)  # width / height of automatic buckets, and their inverses
LONGEST = 2048  # frames of a bucket
_SAME_RATIO = 0.05  # shapes whose ratios differ less than this, in log, are taken for the same
Shape = tuple[int, int]  # height, width


@dataclass(frozen=True)
class Sizes:
    """What a clip's bucket is chosen from: whole buckets, else frame counts and frame sizes apart, automatic where there are none."""

    spec: FamilySpec
    buckets: tuple[Bucket, ...] = ()
    counts: tuple[int, ...] = ()  # frames
    shapes: tuple[Shape, ...] = ()
    no_upscale: bool = False

    def choose(self, frames: int, height: int, width: int, windowed: bool = False) -> Bucket | None:
        """The bucket of a clip of `frames` frames, or None if it fills none; with windows its frames only limit their range.

        A single frame takes one frame of the nearest size, and longer clips take no bucket of one frame unless all are.
        """
        if frames == 1 and self.spec.frame_rule.allows(1):
            stills = [bucket.model_copy(update={"frames": 1}) for bucket in self.buckets]
            return self._choose(stills, (1,), 1, height, width, False)
        longer = [bucket for bucket in self.buckets if bucket.frames > 1]
        counts = tuple(count for count in self.counts if count > 1)
        return self._choose(longer or self.buckets, counts or self.counts, frames, height, width, windowed)

    def _choose(
        self, buckets: Sequence[Bucket], counts: Sequence[int], frames: int, height: int, width: int, windowed: bool
    ) -> Bucket | None:
        if not buckets:
            return self._combined(counts, frames, height, width, windowed)
        filled = [bucket for bucket in buckets if windowed or bucket.frames <= frames]
        fitting = [bucket for bucket in filled if not self._enlarges((bucket.height, bucket.width), height, width)]
        if fitting or not filled:
            return choose_bucket(fitting, frames, height, width, windowed)
        own = own_size(self.spec, height, width)
        return Bucket(frames=max(bucket.frames for bucket in filled), height=own[0], width=own[1])

    def _combined(self, counts: Sequence[int], frames: int, height: int, width: int, windowed: bool) -> Bucket | None:
        """A bucket of a frame count and a size that are chosen apart."""
        if windowed:
            count = max(counts, default=min(frames, LONGEST))
        elif counts:
            count = max((count for count in counts if count <= frames), default=0)
        else:
            count = self.spec.frame_rule.floor(min(frames, self.spec.default_bucket[0]))
        if count < 1 or (count > frames and not windowed):
            return None
        shapes = [shape for shape in self.shapes if not self._enlarges(shape, height, width)]
        shape = nearest_shape(shapes, height, width) if shapes else _nearest_ratio(self._common, height, width)
        if self._enlarges(shape, height, width) or (self.shapes and not shapes):
            shape = own_size(self.spec, height, width)
        return Bucket(frames=count, height=shape[0], width=shape[1])

    @cached_property
    def _common(self) -> list[Shape]:
        """The sizes where none is set, of about the family's default area: few, so that batches can be filled."""
        return shapes_of_area(self.spec, *self.spec.default_bucket[1:], ())

    def _enlarges(self, shape: Shape, height: int, width: int) -> bool:
        return self.no_upscale and (shape[0] > height or shape[1] > width)

    @property
    def least(self) -> int:
        """The fewest frames that a clip, not a still image, can be trained with."""
        counts = [*(bucket.frames for bucket in self.buckets), *self.counts]
        rule = self.spec.frame_rule
        return min([count for count in counts if count > 1] or counts, default=max(rule.offset, rule.shortest))

    @property
    def longest(self) -> int:
        """The most frames of a bucket; 0 if that is not limited."""
        return max([*(bucket.frames for bucket in self.buckets), *self.counts], default=0)

    @property
    def first(self) -> Bucket | None:
        """The first bucket asked for that is not of still images, if any."""
        return next((bucket for bucket in self.buckets if bucket.frames > 1), self.buckets[0] if self.buckets else None)

    def holding(self, frames: int) -> Sizes:
        """The buckets and counts that hold so many frames."""
        counts = tuple(count for count in self.counts if count >= frames)
        return replace(self, buckets=tuple(bucket for bucket in self.buckets if bucket.frames >= frames), counts=counts)


def sizes(settings: ClipSizes, spec: FamilySpec, windowed: bool) -> tuple[Sizes, list[Problem]]:
    """The settings on the family's grid, with a notice for each that was moved.

    Raises UserError if only one of frame counts and areas is given beside whole buckets.
    """
    shapes = list(
        dict.fromkeys(
            shape for area in settings.resolutions for shape in shapes_of_area(spec, area.height, area.width, settings.aspect_ratios)
        )
    )
    counts = settings.frame_buckets if windowed else list(dict.fromkeys(map(spec.frame_rule.floor, settings.frame_buckets)))
    buckets, notices = rounded_buckets(settings.buckets, spec, windowed)
    if buckets and bool(counts) != bool(shapes):
        given, missing = ("frame_buckets", "resolutions") if counts else ("resolutions", "frame_buckets")
        raise fail(f"dataset.{given}", "makes no bucket beside whole buckets.", f"Set dataset.{missing} too, or leave out dataset.buckets.")
    if counts and shapes:
        buckets += [Bucket(frames=count, height=height, width=width) for count in counts for height, width in shapes]
    if buckets:
        counts, shapes = [], []
    made = Sizes(spec, tuple(dict.fromkeys(buckets)), tuple(counts), tuple(shapes), settings.no_upscale)
    return made, [*notices, *_moved(settings, spec, windowed)]


def _moved(settings: ClipSizes, spec: FamilySpec, windowed: bool) -> list[Problem]:
    """A notice for each frame count and area that is off the family's grid."""
    frames = {count: spec.frame_rule.floor(count) for count in settings.frame_buckets if not windowed}
    areas = {area: spec.size_near(area.height, area.width) for area in settings.resolutions}
    return [
        Problem(f"dataset.frame_buckets.{n}", f"{count} frames were rounded to {frames[count]}: the model takes {spec.frame_rule}.")
        for n, count in enumerate(settings.frame_buckets)
        if frames.get(count, count) != count
    ] + [
        Problem(f"dataset.resolutions.{n}", f"{area} was rounded to {grid[0]}x{grid[1]}: the model takes {spec.size_rule}.")
        for n, (area, grid) in enumerate(areas.items())
        if grid != (area.height, area.width)
    ]


def rounded_buckets(buckets: Sequence[Bucket], spec: FamilySpec, windowed: bool) -> tuple[list[Bucket], list[Problem]]:
    """The buckets on the family's grid without doubles, and a notice for each that was moved.

    Frames go down to the frame rule, sides to the nearest multiple. With windows a bucket's frames only limit the
    range the windows slide over, so they stay as given.
    """
    rounded, notices = [], []
    for n, bucket in enumerate(buckets):
        frames = bucket.frames if windowed else spec.frame_rule.floor(bucket.frames)
        height, width = spec.size_near(bucket.height, bucket.width)
        new = Bucket(frames=frames, height=height, width=width)
        if new != bucket:
            rule = f"frames {spec.frame_rule}, sides {spec.size_rule}"
            notices.append(Problem(f"dataset.buckets.{n}", f"{bucket} was rounded to {new}: the model takes {rule}."))
        if new not in rounded:
            rounded.append(new)
    return rounded, notices


def choose_bucket(buckets: Sequence[Bucket], frames: int, height: int, width: int, windowed: bool) -> Bucket | None:
    """The bucket of a clip: of those it fills, the nearest in shape, then the longest, then the nearest in area.

    None if it fills no bucket. With windows a clip need not fill its bucket.
    """
    filled = [bucket for bucket in buckets if windowed or bucket.frames <= frames]
    near = _of_nearest_shape([(bucket.height, bucket.width) for bucket in filled], height, width)
    return min(
        (bucket for bucket in filled if (bucket.height, bucket.width) in near),
        key=lambda bucket: (-bucket.frames, *_distance((bucket.height, bucket.width), height, width)),
        default=None,
    )


def nearest_shape(shapes: Sequence[Shape], height: int, width: int) -> Shape:
    """Of the shapes nearest to height : width, the one nearest in area."""
    return min(_of_nearest_shape(shapes, height, width), key=lambda shape: _distance(shape, height, width))


def _of_nearest_shape(shapes: Sequence[Shape], height: int, width: int) -> list[Shape]:
    """The nearest shape, and those that only the size grid makes differ from it."""
    away = [_shape_distance(shape, height, width) for shape in shapes]
    return [shape for shape, distance in zip(shapes, away, strict=True) if distance <= min(away) + _SAME_RATIO]


def _distance(shape: Shape, height: int, width: int) -> tuple[float, float]:
    """How far a size is from another in area, then in shape."""
    return round(abs(math.log(shape[0] * shape[1] / (height * width))), 6), _shape_distance(shape, height, width)


def _shape_distance(shape: Shape, height: int, width: int) -> float:
    return round(abs(math.log((shape[1] * height) / (shape[0] * width))), 6)


def _nearest_ratio(shapes: Sequence[Shape], height: int, width: int) -> Shape:
    return min(shapes, key=lambda shape: abs(math.log(shape[1] * height / (shape[0] * width))))


def shapes_of_area(spec: FamilySpec, height: int, width: int, ratios: Sequence[float]) -> list[Shape]:
    """Sizes of about the area height × width on the size grid: of the ratios, or of its own and the common shapes, lying and standing."""
    area, own = height * width, width / height
    if ratios:
        return list(dict.fromkeys(spec.size_near(math.sqrt(area / ratio), math.sqrt(area * ratio)) for ratio in ratios))
    found = [spec.size_near(height, width), spec.size_near(width, height)]
    for ratio in _RATIOS:
        if abs(math.log(ratio / max(own, 1 / own))) > _SAME_RATIO:
            short, long = math.sqrt(area / ratio), math.sqrt(area * ratio)
            found += [spec.size_near(short, long), spec.size_near(long, short)]
    return list(dict.fromkeys(found))


def own_size(spec: FamilySpec, height: int, width: int) -> Shape:
    """The largest size on the grid that lies within height × width, at least one step of it."""
    least, multiple = spec.size_near(1, 1), spec.size_multiple
    return spec.only_size or (max(height // multiple * multiple, least[0]), max(width // multiple * multiple, least[1]))
