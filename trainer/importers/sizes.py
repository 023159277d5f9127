"""Clip sizes: buckets and sizes of sample videos, and what the model's rule makes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .result import Entry, Report
from .rules import as_number

Size = tuple[int | None, int | None, int | None]  # frames, height, width; None where a setting speaks of the others only
STEP = 16  # px that sides made from an area are multiples of, unless the family says otherwise


def add_buckets(report: Report, sizes: Sequence[tuple[int, int, int]]) -> None:
    """Adds buckets of frames, height, width to the job, each once."""
    known: list[dict[str, int]] = report.value("dataset.buckets") or []
    new = [as_bucket(size) for size in dict.fromkeys(sizes)]
    report.put("dataset.buckets", known + [bucket for bucket in new if bucket not in known])


def tell(report: Report, entry: Entry, sizes: Sequence[Size], why: str = "") -> None:
    """The line of a setting that shaped buckets: mapped, or rounded where the run will move them to the family's rule."""
    given, new = list(map(describe, sizes)), list(map(describe, (_rounded(report, size) for size in sizes)))
    why = joined("height x width" if any(size[0] is None and None not in size[1:] for size in sizes) else "", why)
    if not (report.family and report.family.frames):
        report.mapped(entry, "dataset.buckets", ", ".join(given), joined(why, "the run rounds what the model does not take, and says so"))
    elif given != new:
        moved = ", ".join(f"{a} -> {b}" for a, b in zip(given, new, strict=True) if a != b)
        report.rounded(entry, "dataset.buckets", ", ".join(new), joined(why, f"{moved}: {_rule(report)}"))
    else:
        without = [_rounded(report, size, windows=False)[0] for size in sizes]
        kept = [f"{size[0]} stays, since windows lie within it; alone it would be {frames}"
                for size, frames in zip(sizes, without, strict=True) if frames != size[0]]  # fmt: skip
        report.mapped(entry, "dataset.buckets", ", ".join(given), joined(why, *kept))


def sample_size(report: Report, size: tuple[int, int, int]) -> tuple[int, int, int]:
    """The size a sample video can be drawn at: on the family's grid if it is known."""
    return report.family.rounded(*size) if report.family else size


def tell_sample(report: Report, entry: Entry, target: str, sizes: Sequence[Size], value: Any = None) -> None:
    """The line of a setting that gave sample videos their size, already rounded in the job."""
    moved = [(describe(size), describe(new)) for size in sizes if (new := _rounded(report, size, windows=False)) != size]
    value = value if value is not None else ", ".join(describe(_rounded(report, size, windows=False)) for size in sizes)
    if moved:
        report.rounded(entry, target, value, ", ".join(f"{a} -> {b}" for a, b in dict.fromkeys(moved)) + f": {_rule(report)}")
    else:
        report.mapped(entry, target, value)


def as_bucket(size: tuple[int, int, int]) -> dict[str, int]:
    """A size as the job writes it."""
    return dict(zip(("frames", "height", "width"), size, strict=True))


def shapes(report: Report, area: float, ratios: Sequence[float]) -> list[tuple[int, int]]:
    """Heights and widths of about an area in px² for ratios width : height, on the family's grid."""
    step = (report.family.sides if report.family else 0) or STEP
    found = []
    for ratio in ratios:
        sides = (math.sqrt(area / ratio), math.sqrt(area * ratio))
        height, width = (max(math.floor(side / step + 0.5), 1) * step for side in sides)
        if (height, width) not in found:
            found.append((height, width))
    return found


def whole(value: Any) -> int | None:
    """A whole number from 1 to 2³¹, from a number or text; None for anything else."""
    number = as_number(value)
    return number if isinstance(number, int) and not isinstance(number, bool) and 0 < number < 2**31 else None


def describe(size: Size) -> str:
    """A size in words: "49x480x832", "49 frames", "480x832" or "480 px"."""
    frames, height, width = size
    if frames is not None and height is not None and width is not None:
        return f"{frames}x{height}x{width}"
    if frames is not None:
        return f"{frames} frame{'s' * (frames > 1)}"
    if height is not None and width is not None:
        return f"{height}x{width}"
    return f"{height if height is not None else width} px"


def _rounded(report: Report, size: Size, windows: bool = True) -> Size:
    """A size after the family's rule; under windows a bucket's frames only limit where windows lie, so they stay."""
    if report.family is None:
        return size
    frames, height, width = report.family.rounded(size[0] or 1, size[1] or 1, size[2] or 1)
    if windows and report.windowed:
        frames = size[0] or 1
    return (None if size[0] is None else frames, None if size[1] is None else height, None if size[2] is None else width)


def _rule(report: Report) -> str:
    family = report.family
    assert family is not None
    return f"{family} takes {family.frame_rule} and sides in multiples of {family.sides}"


def joined(*reasons: str) -> str:
    """Reasons as one text, those that are empty left out."""
    return "; ".join(filter(None, reasons))
