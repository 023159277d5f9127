"""What probing found of files before, by their content: a large dataset that has not changed is planned without opening its clips."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..files import remove_leftovers, write_bytes
from .cache import TensorCache
from .colour import Colour
from .probe import PROBE_FORMAT, Probe, probe


class KnownProbes:
    """Probes by content and extension, kept as JSON; remade if unreadable or of another format. It only saves time."""

    def __init__(self, cache: TensorCache) -> None:
        self.path = cache.folder / "probes.json"
        self._known: dict[str, dict[str, Any]] = {}
        with suppress(OSError, ValueError):
            known = json.loads(self.path.read_text(encoding="utf-8"))
            if isinstance(known, dict) and known.get("format") == PROBE_FORMAT and isinstance(known.get("probes"), dict):
                self._known = known["probes"]
        self._changed = False

    def __call__(self, path: Path, content: str) -> Probe:
        """The probe of a file whose hash is `content`; raises UnusableClip saying why it cannot be read."""
        name = content + path.suffix.lower()  # the extension decides who reads it
        with suppress(KeyError, TypeError, ValueError, ZeroDivisionError):
            return _from_json(self._known[name])
        found = probe(path)
        self._known[name] = _as_json(found)
        self._changed = True
        return found

    def save(self) -> None:
        """Writes what is new; a full disk is no error."""
        if self._changed:
            with suppress(OSError):
                remove_leftovers(self.path)
                write_bytes(self.path, json.dumps({"format": PROBE_FORMAT, "probes": self._known}, separators=(",", ":")).encode())
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
