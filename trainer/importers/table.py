"""An import as text: what was taken over, what will differ, what changes nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .result import Imported, Line

HEADINGS = {
    "mapped": "taken over",
    "rounded": "rounded to what the model takes",
    "unsupported": "NOT taken over: the run will differ",
    "ignored": "changes nothing here",
}
LONGEST = 60  # characters of a value


def table(imported: Imported) -> str:
    """The lines by kind in columns; settings of a list that fared alike share a line. Notes stand last."""
    parts = [f"{imported.format}: {', '.join(imported.files)}"]
    for kind, heading in HEADINGS.items():
        rows = [_row(group) for group in _alike([line for line in imported.lines if line.kind == kind])]
        if rows:
            left = min(max(len(row[0]) for row in rows), LONGEST)
            parts.append(
                "\n".join([f"{heading} ({sum(line.kind == kind for line in imported.lines)})", *(_text(row, left) for row in rows)])
            )
    parts += [f"note: {note}" for note in imported.notes]
    return "\n\n".join(parts)


def remaining(imported: Imported, but: Sequence[str]) -> str:
    """The job's settings outside the parts in `but`, one a line."""
    parts = ((part, settings) for part, settings in imported.job.items() if part not in but)
    return "\n".join(f"  {part}.{name} = {value}" for part, settings in parts for name, value in settings.items())


def _alike(lines: Sequence[Line]) -> list[list[Line]]:
    groups: dict[tuple[str, str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((_anywhere(line.source), _anywhere(line.target), line.why), []).append(line)
    return list(groups.values())


def _anywhere(name: str) -> str:
    """A setting's name with # for list positions."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "#", name)


def _row(group: Sequence[Line]) -> tuple[str, str]:
    first = group[0]
    source = first.source if len(group) == 1 else _anywhere(first.source)
    values = list(dict.fromkeys(_short(line.value) for line in group))
    value = values[0] if len(values) == 1 else f"{len(group)} values"
    if first.target:
        target = first.target if len(group) == 1 else _anywhere(first.target)
        return source, f"-> {target} = {value}" + (f"   ({first.why})" if first.why else "")
    return f"{source} = {value}", first.why


def _text(row: tuple[str, str], left: int) -> str:
    return f"  {row[0]:<{left}}  {row[1]}"


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
