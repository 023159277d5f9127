"""Where each setting stands in a job: its parts and their paths, so that an error can name the place of one that stands in another."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, get_args, get_origin

from .errors import Place, closest
from .settings import Settings

KIND = "kind"  # the setting that tells apart the parts of one list


@dataclass(frozen=True)
class Section:
    """One part of a job and where it stands, as `samples.prompts[]`; of a list of several kinds also its kind."""

    path: str
    part: type[Settings]
    kind: str = ""

    def path_to(self, name: str) -> str:
        """Where a setting of this part stands in the job."""
        return f"{self.path}.{name}".strip(".")


@lru_cache
def sections(root: type[Settings]) -> tuple[Section, ...]:
    """All parts of a job, each before the parts inside it; what stands in several kinds of one list is there once."""
    return tuple(dict.fromkeys(_inside(Section("", root))))


def _inside(section: Section) -> Iterator[Section]:
    yield section
    for name, field in section.part.model_fields.items():
        for part, in_list in _parts(field.annotation):
            kind = part.model_fields[KIND].default if KIND in part.model_fields else ""
            yield from _inside(Section(section.path_to(name) + "[]" * in_list, part, kind))


def _parts(annotation: Any, in_list: bool = False) -> Iterator[tuple[type[Settings], bool]]:
    """The settings classes that a field's type is made of, and whether it is a list of them."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        yield annotation, in_list
    for inner in get_args(annotation):
        yield from _parts(inner, in_list or get_origin(annotation) is list)


def section_names(root: type[Settings], place: Place) -> list[str]:
    """The settings of the part at pydantic's place, which has the numbers in lists and behind them kinds."""
    path, kind = _position(root, place)
    parts = [each.part for each in sections(root) if each.path == path and (not kind or kind == each.kind)]
    return sorted({name for part in parts for name in part.model_fields})


def _position(root: type[Settings], place: Place) -> tuple[str, str]:
    """The path and the kind of the part at pydantic's place."""
    kinds = {section.kind for section in sections(root) if section.kind}
    path, kind = "", ""
    for before, key in zip(("", *place), place, strict=False):
        if isinstance(key, int):
            path += "[]"
        elif isinstance(before, int) and key in kinds:
            kind = key
        else:
            path, kind = f"{path}.{key}".strip("."), ""
    return path, kind


def right_place(root: type[Settings], place: Place) -> str:
    """What to do about a setting that is not one where it stands.

    It stands inside parts that its name joins by dots, or in another part or another kind; or else it is the nearest here, or
    the nearest in all of the job.
    """
    name, here = str(place[-1]), section_names(root, place[:-1])
    paths = _paths(root)
    if "." in name and (nested := _nested(name, _position(root, place[:-1])[0], paths)):
        return nested
    own = name.rpartition(".")[2]
    if same := [_with_kinds(path, kinds) for path, kinds in paths.items() if path.rpartition(".")[2] == own]:
        return f"It stands elsewhere: {' or '.join(same)}."
    if close := closest(name, here):
        return f"Did you mean '{close}'?"
    if close := closest(name, [path.rpartition(".")[2] for path in paths], least=0.75):
        path = next(path for path in paths if path.rpartition(".")[2] == close)
        return f"Did you mean '{_with_kinds(path, paths[path])}'?"
    return f"Known names: {', '.join(here)}."


def _paths(root: type[Settings]) -> dict[str, list[str]]:
    """The path of each setting, and the kinds of parts that have it where not all of its list do."""
    found: dict[str, list[str]] = {}
    for section in sections(root):
        for name in section.part.model_fields:
            found.setdefault(section.path_to(name), []).append(section.kind)
    every = {section.path: [each.kind for each in sections(root) if each.path == section.path] for section in sections(root)}
    return {path: [] if kinds == every[path.rpartition(".")[0]] else kinds for path, kinds in found.items()}


def _with_kinds(path: str, kinds: list[str]) -> str:
    return f"{path} of kind {' or '.join(kinds)}" if kinds else path


def _nested(name: str, here: str, paths: Collection[str]) -> str:
    """How a setting is written whose name joins parts by dots, seen from the part that it stands in; empty if there is none like it."""
    path = re.sub(r"\[\d*\]|\.\d+(?=\.|$)", "[]", name)
    before = f"{here}." if here else ""
    wanted = before + path
    if wanted not in paths and path in paths:
        return f"It stands elsewhere: {path}."
    found = wanted if wanted in paths else closest(wanted, list(paths), least=0.85)
    if not (found and found.startswith(before)):
        return ""
    written = "…"
    for part in reversed(found.removeprefix(before).split(".")):
        inner = f"[{written}]" if part.endswith("[]") else written
        written = f'{{"{part.removesuffix("[]")}": {inner}}}'
    return f"Parts stand inside each other: write {written}." if found == wanted else f"Did you mean {written}?"
