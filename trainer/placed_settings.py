"""Where each setting stands in a job: its parts and their paths, so that an error can name the place of one that stands in another."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from .errors import Place
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


def sections(root: type[Settings]) -> list[Section]:
    """All parts of a job, each before the parts inside it; what stands in several kinds of one list is there once."""
    return list(dict.fromkeys(_inside(Section("", root))))


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
    known = sections(root)
    kinds = {section.kind for section in known if section.kind}
    path, kind = "", ""
    for before, key in zip(("", *place), place, strict=False):
        if isinstance(key, int):
            path += "[]"
        elif isinstance(before, int) and key in kinds:
            kind = key
        else:
            path, kind = f"{path}.{key}".strip("."), ""
    return sorted({name for each in known if each.path == path and (not kind or kind == each.kind) for name in each.part.model_fields})


def elsewhere(root: type[Settings], name: str) -> list[str]:
    """The paths of the settings of this name in all of the job, or else of those that are spelt nearly so."""
    known = [(own, section.path_to(own)) for section in sections(root) for own in section.part.model_fields]
    close = [name] if any(own == name for own, _ in known) else difflib.get_close_matches(name, [own for own, _ in known], n=1, cutoff=0.75)
    return list(dict.fromkeys(path for own, path in known if own in close))
