"""Buckets: the sizes clips are trained at, rounded to the family's rule and chosen per clip."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import Problem
from ..job import Bucket
from ..models.base import FamilySpec

_RATIOS = (1.0, 5 / 4, 4 / 3, 3 / 2, 16 / 9, 2.0, 21 / 9)  # width / height of automatic buckets, and their inverses
_SAME_RATIO = 0.05  # ratios this near to the family's default shape use that shape


def rounded_buckets(buckets: Sequence[Bucket], spec: FamilySpec, windowed: bool) -> tuple[list[Bucket], list[Problem]]:
    """The buckets on the family's grid without doubles, and a notice for each that was moved.

    Frames go down to the frame rule, sides to the nearest multiple. With windows a bucket's frames only limit the
    range the windows slide over, so they stay as given.
    """
    rounded, notices = [], []
    for n, bucket in enumerate(buckets):
        frames = bucket.frames if windowed else spec.frame_rule.floor(bucket.frames)
        height, width = (_nearest_multiple(side, spec.size_multiple) for side in (bucket.height, bucket.width))
        new = Bucket(frames=frames, height=height, width=width)
        if new != bucket:
            rule = f"frames {spec.frame_rule}, sides multiples of {spec.size_multiple}"
            notices.append(Problem(f"dataset.buckets.{n}", f"{bucket} was rounded to {new}: the model takes {rule}."))
        if new not in rounded:
            rounded.append(new)
    return rounded, notices


def choose_bucket(buckets: Sequence[Bucket], frames: int, height: int, width: int, windowed: bool) -> Bucket | None:
    """The bucket of a clip: of those it fills, the nearest in shape, then the longest, then the nearest in area.

    None if it fills no bucket. With windows a clip need not fill its bucket.
    """
    filled = [bucket for bucket in buckets if windowed or bucket.frames <= frames]
    if not filled:
        return None
    area = height * width

    def rank(bucket: Bucket) -> tuple[float, int, float]:
        shape = abs(math.log((bucket.width * height) / (bucket.height * width)))
        return round(shape, 6), -bucket.frames, abs(math.log(bucket.height * bucket.width / area))

    return min(filled, key=rank)


def automatic_bucket(spec: FamilySpec, frames: int, height: int, width: int) -> Bucket | None:
    """A bucket for a clip when none are given: the family's default area in the clip's shape.

    Frames are the default count, or the clip's own largest allowed count if it is shorter; None below the rule's least.
    """
    count = spec.frame_rule.floor(min(frames, spec.default_bucket[0]))
    if count > frames:
        return None
    tall, wide = automatic_size(spec, height, width)
    return Bucket(frames=count, height=tall, width=wide)


def automatic_size(spec: FamilySpec, height: int, width: int) -> tuple[int, int]:
    """Height and width of about the default area, in the common shape nearest to height : width, on the size grid.

    Common shapes keep the number of buckets small, so that batches can be filled.
    """
    _, default_height, default_width = spec.default_bucket
    area, own = default_height * default_width, default_width / default_height
    sizes = [(default_height, default_width), (default_width, default_height)]
    for ratio in _RATIOS:
        if abs(math.log(ratio / max(own, 1 / own))) > _SAME_RATIO:
            short, long = (_nearest_multiple(side, spec.size_multiple) for side in (math.sqrt(area / ratio), math.sqrt(area * ratio)))
            sizes += [(short, long), (long, short)]
    return min(sizes, key=lambda size: abs(math.log(size[1] * height / (size[0] * width))))


def _nearest_multiple(side: float, multiple: int) -> int:
    """The nearest multiple, halves up, at least one and at least the 16 px a bucket can have."""
    return max(math.floor(side / multiple + 0.5), math.ceil(16 / multiple)) * multiple
