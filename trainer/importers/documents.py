"""Foreign files as plain data: TOML, JSON, JSON lines, CSV, and the commands of shell scripts."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import UserError, fail
from ..files import kind_of, read_file, reason, regular
from ..packages import install_command
from .result import Entry
from .shell import Command, commands

LARGEST = 8 << 20  # bytes; a configuration is text that people write
DEEPEST = 64  # tables and lists inside each other, likewise
_EATEN = re.compile(r"[A-Za-z]:[\x00-\x1f]")  # C: and what \n, \t, \b … stood for
_PATH_KEY = re.compile(r"(path|dir|directory|file|folder|dataset|config|root|existing|model_name)$")


@dataclass(frozen=True)
class Document:
    """A file as nested dicts and lists, or one command of a script, whose `program` is then not empty."""

    path: Path
    data: dict[str, Any]
    program: str = ""
    several: bool = False  # whether the file holds other commands too
    unread: tuple[str, ...] = ()  # what of a script was not followed

    @property
    def label(self) -> str:
        """What tells it from all others: its path, and the program if the file holds several."""
        return f"{self.path} {self.program}" if self.several else str(self.path)

    def entries(self) -> list[Entry]:
        """Its settings: every value that is not a table or a list of tables."""
        flags = self.program != ""
        return [
            Entry(self.label, key, value, flags and not key.startswith(("launcher.", "environment."))) for key, value in _leaves(self.data)
        ]

    def entry(self, key: str) -> Entry | None:
        """The setting of this key, if the file has it."""
        return next((entry for entry in self.entries() if entry.key == key), None)

    def beside(self, name: str) -> Path | None:
        """A file this one names: from this file's folder, from the working folder, or of that name in this file's folder."""
        for path in (self.path.parent / name, Path(name), self.path.parent / re.split(r"[\\/]", name)[-1]):
            if name and kind_of(path) == "file":
                return path
        return None


def read(path: Path) -> list[Document]:
    """The documents in a file, told apart by its content; raises UserError naming the file, the line and the cure."""
    try:
        documents = _documents(path)
        if all(_is_shallow(document.data) for document in documents):
            return documents
    except RecursionError:  # of a parser
        pass
    raise fail(str(path), "has tables or lists inside each other without end.", "Give the trainer's configuration file.")


def _is_shallow(data: Any) -> bool:
    """Whether data are nested no deeper than can be gone through."""
    level = [data]
    for _ in range(DEEPEST):
        tables = [value.values() if isinstance(value, dict) else value for value in level if isinstance(value, (dict, list))]
        level = [part for table in tables for part in table]
    return not level


def _documents(path: Path) -> list[Document]:
    text = _text(path)
    suffix = path.suffix.lower()
    if suffix in (".yaml", ".yml"):
        raise fail(str(path), "is YAML, which is not read.", "Give the trainer's command line, TOML, JSON or CSV.")
    if suffix == ".toml":
        return [Document(path, _toml(path, text))]
    if suffix == ".csv":
        return [Document(path, {"data": _csv(path, text)})]
    if suffix in (".json", ".jsonl"):
        return [Document(path, _json(path, text))]
    if text.lstrip()[:1] in ("{", "["):
        try:
            return [Document(path, _json(path, text))]
        except UserError:
            pass  # "[general]" begins a TOML file too
    if found := _commands(path, text):
        twice = [command.program for n, command in enumerate(found) if command.program in [other.program for other in found[:n]]]
        if twice:
            raise fail(str(path), f"runs {twice[0] or 'its command'} several times with other settings.", "Keep the one to import.")
        return [Document(path, command.data, command.program or "--", len(found) > 1, command.unread) for command in found]
    try:
        return [Document(path, _toml(path, text))]
    except UserError:
        raise fail(str(path), "holds no command with --settings and is neither JSON nor TOML.", "See the list of formats.") from None


def _commands(path: Path, text: str) -> list[Command]:
    try:
        return commands(text, path)
    except UserError as error:
        raise UserError(replace(problem, where=f"{path}, {problem.where}") for problem in error.problems) from None


def _text(path: Path) -> str:
    try:
        if regular(path).st_size > LARGEST:
            raise fail(str(path), "is too large for a configuration.", "Give the trainer's configuration file.")
        data = read_file(path)
    except OSError as error:
        raise fail(str(path), f"cannot be read: {reason(error)}.", "Give the path of a configuration file.") from None
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if utf16 else "utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise fail(str(path), "is not UTF-8 text.", "Save it as UTF-8.") from None


def _csv(path: Path, text: str) -> list[dict[str | Any, str | Any]]:
    try:
        return list(csv.DictReader(io.StringIO(text)))
    except csv.Error as error:
        raise fail(str(path), f"is no table: {error}.", "Check its quotes.") from None


def _toml(path: Path, text: str) -> dict[str, Any]:
    parser = _toml_parser()
    try:
        data = parser.loads(text)
    except ValueError as error:  # a number of thousands of digits is not a TOMLDecodeError
        at_end = len(text.rstrip().split("\n")) if "at end of document" in str(error) else 0
        number = int(found[1]) if (found := re.search(r"at line (\d+)", str(error))) else at_end
        if quoted := _quoted_backslash(text, number):
            raise _toml_backslash(path, number, quoted) from None
        if mistake := number and _toml_mistake(path, text, number):
            raise mistake from None
        raise fail(str(path), f"is not TOML: {error}.", "Put it right there and try again.") from None
    if (number := _eaten_backslash(data, text)) and (quoted := _quoted_backslash(text, number)):
        raise _toml_backslash(path, number, quoted)
    return data


def _toml_mistake(path: Path, text: str, number: int) -> UserError | None:
    """The mistake on a line that the parser stopped at, if it is one that people make: a switch without a value, or a name given twice."""
    lines = text.split("\n")
    while number > 1 and not re.match(r"\s*(\[|-{0,2}[\w\"'-]+\s*(=|#|$))", lines[number - 1]):
        number -= 1  # from the end of a value of several lines to its name
    line = lines[number - 1].partition("#")[0].strip()
    where, name = f"{path}, line {number}", line.partition("=")[0].strip("-\"' \t")
    if re.fullmatch(r"-{0,2}[\w\"'-]+\s*=?", line):
        return fail(where, f"{name} has no value.", f"Write it as {name} = true if it is a switch, else with its value, or leave it out.")
    given, cure = (line, "Join the two.") if line.startswith("[") else (name, "Keep the one that holds.")
    before = _lines_of(lines[: number - 1], given) if given else []
    return fail(where, f"{given} is given before, in line {before[-1]}.", cure) if before else None


def lines_of(path: Path, name: str) -> list[int]:
    """The lines of a TOML file, counted from 1, on which a setting is given."""
    return _lines_of(_text(path).split("\n"), name)


def _lines_of(lines: list[str], name: str) -> list[int]:
    """The lines that give a setting or begin a table, which is named with its brackets."""
    pattern = rf"\s*{re.escape(name)}" if name.startswith("[") else rf"""\s*["']?{re.escape(name)}["']?\s*="""
    return [number for number, line in enumerate(lines, 1) if re.match(pattern, line)]


def _toml_parser() -> Any:
    for name in ("tomllib", "tomli"):  # tomllib is part of Python from 3.11 on
        try:
            return import_module(name)
        except ModuleNotFoundError:
            continue
    raise fail("TOML", "cannot be read by Python 3.10 alone.", f"Run: {install_command('tomli')}")


def _toml_backslash(path: Path, number: int, text: str) -> UserError:
    found = f'"{text}" has backslashes in double quotes, where TOML gives them a meaning of their own.'
    return fail(f"{path}, line {number}", found, f"Write it in single quotes: '{text}'.")


def _json(path: Path, text: str) -> dict[str, Any]:
    """A JSON object as it is; a list, or JSON lines, as {"data": list}."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        data = _json_lines(text)
        number = getattr(error, "lineno", 0)
        if data is None and (quoted := _quoted_backslash(text, number)):
            raise _json_backslash(path, number, quoted) from None
        if data is None:
            raise fail(str(path), f"is not JSON: {error}.", "Put it right there and try again.") from None
    if (number := _eaten_backslash(data, text)) and (quoted := _quoted_backslash(text, number)):
        raise _json_backslash(path, number, quoted)
    if isinstance(data, list):
        data = {"data": data}
    if not isinstance(data, dict):
        raise fail(str(path), "is not a configuration.", "A configuration in JSON is an object or a list of objects.")
    return data


def _json_lines(text: str) -> list[Any] | None:
    """Each line as JSON, or None if one is not."""
    try:
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    except (ValueError, RecursionError):
        return None


def _json_backslash(path: Path, number: int, text: str) -> UserError:
    cure = f'Write "{text.replace(chr(92), "/")}", or each backslash twice.'
    return fail(f"{path}, line {number}", f'"{text}" has single backslashes, which JSON gives a meaning of their own.', cure)


def _quoted_backslash(text: str, number: int) -> str:
    """What stands in double quotes with a single backslash on a line, counted from 1; empty if nothing does."""
    line = text.split("\n")[number - 1] if number else ""
    return next((found for found in re.findall(r'"([^"]*)"', line) if re.search(r"(?<!\\)\\(?!\\)", found)), "")


def _eaten_backslash(data: Any, text: str) -> int:
    """The line of a path in which "\\n", "\\t" and the like became control characters; 0 if there is none."""
    for key, value in _leaves(data):
        name = key.rpartition(".")[2]
        in_path = isinstance(value, str) and (_EATEN.match(value) or (_PATH_KEY.search(name) and re.search(r"[\x00-\x1f]", value)))
        if in_path:
            lines = enumerate(text.split("\n"), 1)
            return next((number for number, line in lines if name in line and _quoted_backslash(line, 1)), 0)
    return 0


def _leaves(data: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Each value that is not a table or a list of tables, with its path; an empty table is a value."""
    if isinstance(data, dict) and data:
        parts = [(str(name), part) for name, part in data.items()]
    elif isinstance(data, list) and data and all(isinstance(part, dict) for part in data):
        parts = [(str(n), part) for n, part in enumerate(data)]
    else:
        yield key, data
        return
    for name, part in parts:
        yield from _leaves(part, f"{key}.{name}" if key else name)
