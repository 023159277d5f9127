"""What probing found of files before, by their content: a large dataset that has not changed is planned without opening its clips."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import date
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..files import remove_leftovers
from .colour import Colour
from .content import Content, nothing
from .kept import keep, kept
from .probe import PROBE_FORMAT, Probe, probe


class KnownProbes:
    """Probes by content and extension with the day of their last use, kept as JSON in the cache; remade if damaged or of another format."""

    def __init__(self, cache: Path) -> None:
        self.path = cache / "probes.json"
        found = kept(self.path) or {}
        self._known: dict[str, tuple[str, dict[str, Any]]] = found["probes"] if found.get("format") == PROBE_FORMAT else {}
        self._today, self._changed = date.today().isoformat(), False

    def __call__(self, path: Path, content: Content, check: Callable[[], None] = nothing) -> Probe:
        """The probe of a file; raises UnusableClip saying why it cannot be read, ChangedFile if it no longer has this content."""
        name = content.digest + path.suffix.lower()  # the extension decides who reads it
        day, known = self._known.get(name, ("", None))
        if known is not None:
            found = _from_json(known)
        else:
            with content.steady(path, check):
                found = probe(path)
            known = _as_json(found)
        if day != self._today:
            self._known[name] = self._today, known
            self._changed = True
        return found

    def forget(self, limit: date) -> None:
        """Drops those that were last used on that day or before."""
        kept_on = {name: entry for name, entry in self._known.items() if date.fromisoformat(entry[0]) > limit}
        self._changed = len(kept_on) < len(self._known)
        self._known = kept_on

    def save(self) -> None:
        """Writes what is new, or removes the file if nothing is known; a full disk is no error."""
        if self._changed:
            with suppress(OSError):
                remove_leftovers(self.path)
                if not self._known:
                    self.path.unlink(missing_ok=True)
            if self._known:
                keep(self.path, {"format": PROBE_FORMAT, "probes": self._known})
            self._changed = False


def _as_json(found: Probe) -> dict[str, Any]:
    return {**asdict(found), "ticks": _steps(found.ticks), "times": _rate(found.times), "end": str(found.end)}


def _from_json(kept: dict[str, Any]) -> Probe:
    count, ticks, times = kept["ticks"].get("count"), kept["ticks"], kept["times"]
    if count is not None:
        ticks = {"all": range(ticks["start"], ticks["start"] + count * ticks["step"], ticks["step"])}
    return Probe(**{
        **kept, "ticks": tuple(ticks["all"]), "end": Fraction(kept["end"]), "colour": Colour(**kept["colour"]), "keys": tuple(kept["keys"]),
        "times": _evenly(times["rate"], times["count"]) if "rate" in times else tuple(map(Fraction, times["all"])),
    })  # fmt: skip


@lru_cache(maxsize=256)  # clips of one camera share their times
def _evenly(rate: str, count: int) -> tuple[Fraction, ...]:
    frames = Fraction(rate)
    return tuple(index / frames for index in range(count))


def _steps(ticks: Sequence[int]) -> dict[str, Any]:
    """Whole numbers as start, step and count where they are evenly spaced."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1
    even = step > 0 and list(ticks) == list(range(ticks[0], ticks[0] + len(ticks) * step, step))
    return {"start": ticks[0], "step": step, "count": len(ticks)} if even else {"all": list(ticks)}


def _rate(times: Sequence[Fraction]) -> dict[str, Any]:
    """Times from 0 as a rate and a count where they are evenly spaced."""
    rate = 1 / times[1] if len(times) > 1 and times[1] else Fraction(1)
    even = all(time == index / rate for index, time in enumerate(times))
    return {"rate": str(rate), "count": len(times)} if even else {"all": list(map(str, times))}
