"""Captions that tell what happens when: "a man in a room [0-2.5s] he stands up [2.5-5s] he walks to the window".

A mark is two times in seconds of the clip, as a player shows them, the unit behind the second, in square brackets; the text
up to the next mark is that of the span from the first time to just before the second. Line breaks mean nothing. The text
before the first mark is for the clip as a whole. What is no mark stays text, and what was perhaps meant to be one is told.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from .sources.text_file import one_line

if TYPE_CHECKING:
    from .plan import ClipPlan
    from .takes import Take

_DASH = "[-\u2010-\u2014\u2212]"  # word processors make the longer ones of a hyphen
_SECONDS = r"(\d{1,9}(?:\.\d{1,9})?)"
_MARK = re.compile(rf"\[\s*{_SECONDS}\s*s?\s*{_DASH}\s*{_SECONDS}\s*s\s*\]", re.IGNORECASE)
_TIME, _UNIT = r"\.?\d[\d.,:]*", r"(?:ms|s|secs?|seconds?|f|frames?)?"
_ALMOST = re.compile(
    rf"\[\s*{_TIME}\s*{_UNIT}\s*(?:{_DASH}|~|to|\.\.+)\s*(?:{_TIME}\s*{_UNIT}|end)?\s*\]"
    rf"|\[\s*{_TIME}\s*s?\s*{_DASH}\s*{_TIME}\s*s\b(?!\s*\])"
    rf"|\[\s*{_DASH}\s*{_TIME}\s*s\s*\]",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Span:
    """What is said of the time from `start` to just before `end`, s; `mark` is how it is written."""

    start: Fraction
    end: Fraction
    text: str
    mark: str


@dataclass(frozen=True)
class TimedCaption:
    """A caption taken apart: the text of the whole clip, spans in the order of writing, and what seems to be a mark and is none."""

    text: str
    spans: tuple[Span, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def whole(self) -> str:
        """What is said of the clip as a whole; without text before the first mark, all that its spans say."""
        return self.text or " ".join(span.text for span in self.spans)

    @property
    def texts(self) -> list[str]:
        """Every text in it: that of the whole clip, unless there are spans and no such text, and each span's."""
        return [self.text] * bool(self.text or not self.spans) + [span.text for span in self.spans]

    def at(self, times: Sequence[Fraction], end: Fraction) -> Span | None:
        """The span whose text goes with frames shown at `times` of a clip that ends at `end`, s; None for the text before the first mark.

        It is the one that covers most of them, of equals the one written first; frames that no span covers are the whole
        clip's. If more than half of each of several spans is seen, so is the clip as a whole, if a text is there for it.
        """
        inside = [span for span in self.spans if span.start < end]
        if self.text and len(inside) > 1 and all(_is_seen(span, times, end) for span in inside):
            return None
        most = max(self.spans, key=lambda span: _covered(span, times), default=None)
        free = sum(not any(span.start <= time < span.end for span in self.spans) for time in times)
        return most if most and _covered(most, times) >= max(free, 1) else None


def _covered(span: Span, times: Sequence[Fraction]) -> int:
    return sum(span.start <= time < span.end for time in times)


def _is_seen(span: Span, times: Sequence[Fraction], end: Fraction) -> bool:
    """Whether more than half of a span lies between the first and the last time."""
    stop = min(span.end, end)
    return 2 * (min(stop, max(times)) - max(span.start, min(times))) > stop - span.start


@lru_cache(maxsize=4096)
def timed(caption: str) -> TimedCaption:
    """Takes a caption apart; one without marks is its own text, letter by letter."""
    marks, faults = list[tuple[re.Match[str], Fraction, Fraction]](), list[str]()
    for mark in _MARK.finditer(caption):
        start, end = Fraction(mark[1]), Fraction(mark[2])
        if start < end:
            marks.append((mark, start, end))
        else:
            faults.append(f"'{mark[0]}' does not end after it begins, and stays in the caption as text")
    faults += [
        f"'{almost[0]}' is no span of time, and stays in the caption as text: spans are in seconds, such as [0-2.5s]"
        for almost in _ALMOST.finditer(caption)
        if not _MARK.fullmatch(almost[0])
    ]
    spans = list[Span]()
    for number, (mark, start, end) in enumerate(marks):
        stop = marks[number + 1][0].start() if number + 1 < len(marks) else len(caption)
        if text := one_line(caption[mark.end() : stop]):
            spans.append(Span(start, end, text, mark[0]))
        else:
            faults.append(f"'{mark[0]}' has no text behind it, and captions nothing")
    return TimedCaption(one_line(caption[: marks[0][0].start()]) if marks else caption, tuple(spans), tuple(faults))


def section_ranges(frames: int, sections: int) -> list[range]:
    """The frames of each section in the order of time; the first frame, from which a video of several starts, is in none."""
    length = frames // sections
    first = frames - length * sections
    return [range(first + length * number, first + length * (number + 1)) for number in range(sections)]


def is_timed(plan: ClipPlan) -> bool:
    """Whether any of a clip's captions has spans."""
    return any(timed(caption).spans for caption in plan.record.captions)


def spans_seen(plan: ClipPlan, take: Take) -> list[tuple[Span | None, ...]]:
    """The span of each of the clip's captions that is said of each window of a variant, of each section where it is cut into these."""
    captions, times = list(map(timed, plan.record.captions)), plan.probe.times
    end = plan.probe.end or Fraction(1)  # a still picture has one moment
    frames = [[times[index] for index in numbers] for numbers in plan.frames_of(take)]
    return [tuple(caption.at(shown, end) for caption in captions) for shown in frames]


def unused_spans(plan: ClipPlan) -> list[str]:
    """The marks of the spans that no window of any variant is captioned with."""
    seen = {span for take in plan.takes for spans in spans_seen(plan, take) for span in spans}
    return [span.mark for caption in plan.record.captions for span in timed(caption).spans if span not in seen]
