"""Which scripts are of Windows, and those of PowerShell (.ps1), read and never run, with their variables and continued lines.

The rules are those of PowerShell's about_Quoting_Rules, about_Variables and about_Splatting. What a script computes while it runs
is not known here: such variables stay as they are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from .cmd_text import REDIRECTION
from .expansion import Expansion
from .shell_words import Statement

SUFFIXES = (".bat", ".cmd", ".ps1")
_CONTINUED = re.compile(r"\^[ \t]*\n|(?<=[ \t])`[ \t]*\n")
_POWERSHELL = re.compile(r"(?im)(?<=[ \t])`[ \t]*$|\$env:|^[ \t]*\$\w+[ \t]*=|^[ \t]*&[ \t]+\S")
_CMD = re.compile(
    r"(?im)\^[ \t]*$|^[ \t]*@?(?:echo[ \t]+off|setlocal|rem[ \t]|set[ \t]+\"?\w+=)|%[a-z_]\w+%|(?<!\S)\.?\\?[\w.]+\\[\w.\\-]+\.py\b"
)
_ASSIGNED = re.compile(r"(?i)\$(env:)?(\w+)[ \t]*(\+?)=[ \t]*(.*)", re.DOTALL)
_DOLLAR = re.compile(r"(?i)\$(?:\{(?:env:)?(\w+)\}|(?:env:)?(\w+))")
_ESCAPED = {"n": "\n", "t": "\t"}  # behind PowerShell's backtick in double quotes
_TO_LINE_END = re.compile(r"#[^\n]*")  # a comment
_PARTING = re.compile(r"(?s)`.|'[^']*'?|\"(?:`.|[^`\"])*\"?|(?<!\S)#[^\n]*|[;(){}]")
_SPLAT = re.compile(r"@(\w+)")


def of_windows(text: str, path: Path | None = None) -> str:
    """Which of the two a script is, by its file's ending or what it holds: "cmd", "powershell", or "" for another."""
    suffix = path.suffix.lower() if path else ""
    if suffix in SUFFIXES:
        return "powershell" if suffix == ".ps1" else "cmd"
    if suffix == ".sh" or text.startswith("#!") or re.search(r"[ \t]\\\n", text):
        return ""
    return "powershell" if _POWERSHELL.search(text) else "cmd" if _CMD.search(text) else ""


class PowerShellScript:
    """Reads a script line by line; nothing is run. `exported` are the variables of the environment alone."""

    def __init__(self) -> None:
        self.variables: dict[str, str | list[str]] = {"psscriptroot": "."}  # names in small letters
        self.exported: dict[str, str] = {}
        self.statements: list[Statement] = []
        self.unread: list[str] = []
        self.expansion = Expansion()

    def run(self, text: str) -> None:
        """Reads all statements of a text."""
        for line in (piece for lines in _lines(text) for piece in _pieces(lines)):
            if not self._assigned(line):
                self.statements += [Statement(words) for words in self._statements(line) if words]

    def _value(self, named: re.Match[str]) -> str | list[str]:
        """What a variable holds; it stays as it is written where that is not known."""
        return self.expansion.put(self.variables.get(next(filter(None, named.groups())).lower(), named[0]))

    def _hold(self, name: str, value: str | list[str]) -> None:
        self.variables[name.lower()] = self.expansion.held(name, value)

    def _assigned(self, line: str) -> bool:
        """Remembers `$name = value` and `$env:name = value`, if the line is one."""
        if not (found := _ASSIGNED.fullmatch(line)):
            return False
        name, text = found[2], found[4].strip()
        before = self.variables.get(name.lower(), "") if found[3] else ""
        inner = re.fullmatch(r"@\((.*)\)[ \t;]*", text, re.DOTALL)
        words = [word for words in self._statements(inner[1] if inner else text, in_array=inner is not None) for word in words]
        if inner or isinstance(before, list):
            self._hold(name, [*(before if isinstance(before, list) else []), *words])
        else:
            self._hold(name, before + " ".join(words))
        if found[1]:
            self.exported[found[2]] = " ".join(words)
        return True

    def _statements(self, text: str, in_array: bool = False) -> list[list[str]]:
        """The words of each command of a line, after quotes and variables; where its output goes and comments are left out."""
        found: list[list[str]] = [[]]
        blanks, ends = " \t\n," if in_array else " \t", ";|{}\n"
        at = 0
        while at < len(text):
            char = text[at]
            if char in blanks:
                at += 1
            elif char in ends:
                found.append([])
                at += 1
            elif skipped := REDIRECTION.match(text, at) or _TO_LINE_END.match(text, at):
                at = skipped.end()
            elif splat := _SPLAT.match(text, at):
                value = self._value(splat)
                found[-1] += value if isinstance(value, list) else [value]
                at = splat.end()
            else:
                words, at = self._word(text, at, blanks + ends)
                found[-1] += words
        return found

    def _word(self, text: str, at: int, ends: str) -> tuple[list[str], int]:
        """One word and where it ends; a variable that is an array gives several."""
        current = ""
        while at < len(text) and text[at] not in ends:
            char = text[at]
            if char in "\"'":
                part, at = self._quoted(text, at + 1, char)
                current += part
            elif char == "`" and at + 1 < len(text):
                current += text[at + 1]
                at += 2
            elif variable := _DOLLAR.match(text, at):
                at = variable.end()
                value = self._value(variable)
                if isinstance(value, list) and not current:
                    return value, at
                current += _joined(value)
            else:
                current += char
                at += 1
        return [current], at

    def _quoted(self, text: str, at: int, quote: str) -> tuple[str, int]:
        """The text up to the closing quote, and what lies behind it; a quote that is written twice is one."""
        found = ""
        while at < len(text):
            if text[at] == quote:
                if text[at + 1 : at + 2] != quote:
                    break
                found += quote
                at += 2
            elif quote == '"' and text[at] == "`":
                found += _ESCAPED.get(text[at + 1 : at + 2], text[at + 1 : at + 2])
                at += 2
            elif quote == '"' and (variable := _DOLLAR.match(text, at)):
                found += _joined(self._value(variable))
                at = variable.end()
            else:
                found += text[at]
                at += 1
        return found, at + 1


def _lines(text: str) -> Iterator[str]:
    """Lines without comments of several lines; of an array that goes over several lines all as one."""
    kept = ""
    for line in map(str.strip, _CONTINUED.sub(" ", re.sub(r"<#.*?#>", "", text, flags=re.DOTALL)).split("\n")):
        kept = f"{kept}\n{line}" if kept else line
        if "@(" not in kept or kept.count("(") <= kept.count(")"):
            yield kept
            kept = ""
    yield kept


def _pieces(text: str) -> Iterator[str]:
    """What semicolons part that stand neither in quotes, in brackets nor in a comment."""
    start = depth = 0
    for found in _PARTING.finditer(text):
        depth += (found[0] in ("(", "{")) - (found[0] in (")", "}"))
        if found[0] == ";" and depth <= 0:
            yield text[start : found.start()].strip()
            start = found.end()
    yield text[start:].strip()


def _joined(value: str | list[str]) -> str:
    return value if isinstance(value, str) else " ".join(value)
