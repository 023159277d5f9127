"""What becomes of another trainer's file: the job, and one line for each of its settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any, Literal

from ..job import TrainingJob
from .families import Family

if TYPE_CHECKING:
    from .documents import Document

Kind = Literal["mapped", "rounded", "ignored", "unsupported"]
DEFAULTS: dict[str, Any] = TrainingJob().model_dump(mode="json")
ADDED = ("optimizer.options",)  # to which several settings add
_SECRET = re.compile(r"(^|[._-])(hf_|hub_|huggingface_)?token$|api_key|password|secret", re.IGNORECASE)


@dataclass(frozen=True)
class Line:
    """What became of one setting of a foreign file."""

    kind: Kind
    source: str  # its name there, after the file's name if several files were read
    target: str  # the setting of the job, such as "adapter.rank"; empty if there is none
    value: Any  # mapped: what the job holds. rounded: what becomes of it. Else: what the file holds
    why: str = ""


@dataclass(frozen=True)
class Imported:
    """A job made from other trainers' files: `job` is for `TrainingJob.parse` and holds only what differs from our defaults."""

    format: str
    files: tuple[str, ...]
    job: dict[str, Any]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]  # what the user should know besides


@dataclass(frozen=True)
class Entry:
    """One setting of a foreign file; `key` is its path there, such as "model.type" or "directory.0.path"."""

    file: str
    key: str
    value: Any = field(compare=False)
    flag: bool = field(default=False, compare=False)  # from a command line, where it is written --key

    @property
    def name(self) -> str:
        """Its key as it is written there."""
        return f"--{self.key}" if self.flag else self.key

    @property
    def values(self) -> list[Any]:
        """Its value where that is a list, else a list of it alone."""
        return self.value if isinstance(self.value, list) else [self.value]


@dataclass(frozen=True)
class Option:
    """An argument of the optimizer, which waits until all files have been read and it is known which optimizer that is."""

    entry: Entry
    name: str
    value: Any
    off: bool = False  # whether it says nothing of an optimizer that has no such argument


@dataclass
class Report:
    """The job and the lines while the files are read; each entry is answered once."""

    documents: list[Document] = field(default_factory=list)  # all that was read
    family: Family | None = None
    windowed: bool = False
    job: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    waiting: list[Option] = field(default_factory=list)
    _lines: dict[Entry, Line] = field(default_factory=dict)

    def value(self, target: str) -> Any:
        """What the job holds so far at "part.setting", or None."""
        part, _, name = target.partition(".")
        return self.job.get(part, {}).get(name)

    def put(self, target: str, value: Any) -> None:
        """Sets "part.setting" of the job."""
        part, _, name = target.partition(".")
        assert name in DEFAULTS[part], f"the job has no setting {target}"
        self.job.setdefault(part, {})[name] = value

    def mapped(self, entry: Entry, target: str, value: Any, why: str = "") -> None:
        """The setting is in the job now; the caller has put it there."""
        self._answer(entry, "mapped", target, value, why)

    def rounded(self, entry: Entry, target: str, value: Any, why: str) -> None:
        """The setting is in the job, and the run moves it to `value`."""
        self._answer(entry, "rounded", target, value, why)

    def ignored(self, entry: Entry, why: str) -> None:
        """The setting changes nothing here."""
        self._answer(entry, "ignored", "", entry.value, why)

    def unsupported(self, entry: Entry, why: str) -> None:
        """The job cannot hold the setting, so the run will differ in it."""
        self._answer(entry, "unsupported", "", entry.value, why)

    def same(self, entry: Entry, first: Entry) -> None:
        """The setting is a part of what another one became, whose line it shares."""
        line = self._lines[first]
        self._answer(entry, line.kind, line.target, line.value if line.target else entry.value, line.why)

    def wait(self, entry: Entry, name: str, value: Any, off: bool = False) -> None:
        """The setting is the argument `name` of the optimizer and gets its line when it is known which class that is."""
        self.waiting.append(Option(entry, name, value, off))

    def withdraw(self, target: str, why: str) -> None:
        """Says of a setting of the job that it was taken over and is not any more; a note does where no line has it alone."""
        lines = [entry for entry, line in self._lines.items() if line.target == target]
        for entry in lines:
            self._take_back(entry, why)
        if not lines:
            self.notes.append(f"{why}.")

    def answered(self, entry: Entry) -> bool:
        """Whether the entry has its line, or waits for it."""
        return entry in self._lines or any(option.entry == entry for option in self.waiting)

    def taken_over(self, entry: Entry) -> bool:
        """Whether the entry is in the job."""
        return entry in self._lines and self._lines[entry].kind in ("mapped", "rounded")

    def result(self, name: str, entries: Iterable[Entry]) -> Imported:
        """The finished import of these entries, in their order."""
        entries = list(entries)
        self._tell_overruled()
        files = _short_names(dict.fromkeys(entry.file for entry in entries))
        lines = tuple(_named(self._lines[entry], files[entry.file] if len(files) > 1 else "") for entry in entries)
        return Imported(name, tuple(files.values()), _changed(self.job, DEFAULTS), lines, tuple(self.notes))

    def _tell_overruled(self) -> None:
        """Of several settings that set one of the job to different values, the one that holds is said to be taken over, and it alone."""
        for entry, line in list(self._lines.items()):
            part, _, name = line.target.partition(".")
            usual = DEFAULTS.get(part, {}).get(name, [])  # a list, to which several add, or two settings at once
            if line.kind != "mapped" or isinstance(usual, list) or line.target in ADDED:
                continue
            held = usual if self.value(line.target) is None else self.value(line.target)
            if line.value != held:
                holds = (other for other, found in self._lines.items() if found.target == line.target and found.value == held)
                who = _told_beside(entry, next(holds, None))
                self._take_back(entry, f"{who} overrules it: {line.target} is {held}")

    def _take_back(self, entry: Entry, why: str) -> None:
        """What a setting became does not hold any more."""
        del self._lines[entry]
        self.unsupported(entry, why)

    def _answer(self, entry: Entry, kind: Kind, target: str, value: Any, why: str) -> None:
        assert entry not in self._lines, f"{entry.name} is answered twice"
        shown = "(hidden)" if _SECRET.search(entry.key) else _plain(value)
        self._lines[entry] = Line(kind, entry.name, target, shown, why)


def _told_beside(entry: Entry, other: Entry | None) -> str:
    """Another setting in a line on this one, with its file if that is another."""
    if other is None:
        return "another setting"
    return other.name if other.file == entry.file else f"{other.name} of {last_part(other.file)}"


def _short_names(files: Iterable[str]) -> dict[str, str]:
    """Files without their folders, unless two are then the same."""
    files = list(files)
    names = list(map(last_part, files))
    return {file: name if names.count(name) == 1 else file for file, name in zip(files, names, strict=True)}


def last_part(file: str) -> str:
    """A file without its folders."""
    return re.split(r"[\\/]", file)[-1]


def _named(line: Line, file: str) -> Line:
    return replace(line, source=f"{file}: {line.source}") if file else line


def _plain(value: Any) -> Any:
    """TOML's dates as text, so that lines can be written as JSON."""
    return value.isoformat() if isinstance(value, (datetime, date, time)) else value


def _changed(part: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """What differs from the defaults; parts without a difference are left out."""
    kept: dict[str, Any] = {}
    for name, default in defaults.items():
        value = part.get(name, default)
        if isinstance(value, dict) and isinstance(default, dict):
            value = _changed(value, default)
            default = {}
        if value != default:
            kept[name] = value
    return kept
