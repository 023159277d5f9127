"""Which scripts are of Windows, and those of PowerShell (.ps1), read and never run, with their variables and continued lines.

The rules are those of PowerShell's about_Quoting_Rules, about_Variables and about_Splatting. What a script computes while it runs
is not known here: such variables stay as they are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from .cmd_text import REDIRECTION
from .doubts import Block, Doubts
from .expansion import Expansion
from .shell_words import Statement

SUFFIXES = (".bat", ".cmd", ".ps1")
_CONTINUED = re.compile(r"\^[ \t]*\n|(?<=[ \t])`[ \t]*\n")
_POWERSHELL = re.compile(r"(?im)(?<=[ \t])`[ \t]*$|\$env:|^[ \t]*\$\w+[ \t]*=|^[ \t]*&[ \t]+\S")
_CMD = re.compile(
    r"(?im)\^[ \t]*$|^[ \t]*@?(?:echo[ \t]+off|setlocal|rem[ \t]|set[ \t]+\"?\w+=)|%[a-z_]\w+%|(?<!\S)\.?\\?[\w.]+\\[\w.\\-]+\.py\b"
)
_ASSIGNED = re.compile(r"(?i)(?:\[[\w.]+(?:\[\])?\][ \t]*)?\$(env:)?(\w+)[ \t]*(\+?)=[ \t]*(.*)", re.DOTALL)
_DOLLAR = re.compile(r"(?i)\$(?:\{(?:env:)?(\w+)\}|(?:env:)?(\w+))")
_ESCAPED = {"n": "\n", "t": "\t"}  # behind PowerShell's backtick in double quotes
_TO_LINE_END = re.compile(r"#[^\n]*")  # a comment
_PARTING = re.compile(r"(?s)`.|\$\{[^}]*\}?|@\{|'[^']*'?|\"(?:`.|[^`\"])*\"?|(?<!\S)#[^\n]*|[;(){}]")
_COLLECTION = r"(?:System\.)?Collections\.(?:ArrayList|Generic\.List\[[\w.]+\])"
_EMPTY_LIST = re.compile(rf"(?i)(?:\[{_COLLECTION}\]::new\([^)]*\)|New-Object[ \t]+(?:-TypeName[ \t]+)?['\"]?{_COLLECTION}['\"]?(?:\(\))?)")
_CAST = re.compile(rf"(?i)\[(?:{_COLLECTION}|[\w.]+(?:\[\])?)\][ \t]*(?=@\()")
_ADDED = re.compile(
    r"(?is)(?:\[void\][ \t]*\(?[ \t]*|\$null[ \t]*=[ \t]*)?\$(?P<name>\w+)"
    r"\.Add(?P<several>Range)?\((?P<what>.*?)\)+[ \t]*(?:\|[ \t]*Out-Null)?[ \t]*"
)
_LOOP = re.compile(r"(?is)foreach[ \t]*\([ \t]*\$(?P<name>\w+)[ \t]+in[ \t]+(?:@\((?P<listed>.*)\)|(?P<words>.*))\)")
_COMPUTED = re.compile(r"\$\(|\.\.|[*?({]|\.\w+$")  # of a loop's values: what is worked out while the script runs
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
        self.doubts = Doubts(self.expansion)

    def run(self, text: str) -> None:
        """Reads all statements of a text."""
        pieces = [piece for lines in _lines(text) for piece in _pieces(lines)]
        at, head = 0, ""
        while at < len(pieces):
            piece = pieces[at]
            at += 1
            if piece == "{":
                self._open(head, at)
            elif piece == "}":
                at = self._close(pieces, at)
            elif not self._added(piece) and not self._assigned(piece):
                self.doubts.take()
                statements = [words for words in self._statements(piece) if words]
                uses = self.doubts.take()
                self.statements += [Statement(words, uses=uses) for words in statements]
            head = piece if piece not in ("", "}") else head
        self.doubts.finish()

    def _open(self, head: str, start: int) -> None:
        """Begins a block, which may be skipped but for a loop over known words; the variable of another loop is not known."""
        self.doubts.take()
        word = head.lower()
        kind = "function" if word.startswith(("function", "filter")) else "{"
        if not (loop := _LOOP.fullmatch(head)):
            self.doubts.open(Block(kind, 0 if word in ("try", "finally", "{", "&") else self.doubts.number()))
            return
        name, listed = loop["name"].lower(), loop["listed"] or loop["words"] or ""
        values = [word for words in self._statements(listed, in_array=True) for word in words]
        uses = self.doubts.take()
        if not values or uses.unknown or uses.passed or any(map(_COMPUTED.search, values)):
            self.variables.pop(name, None)
            self.doubts.open(Block("for", self.doubts.number()))
            return
        block = Block("for", 0, name, start, values[1:], uses)
        self.doubts.open(block)
        self._turn(block, values[0])

    def _turn(self, block: Block, value: str) -> None:
        self.doubts.uses.add(block.uses)
        self._hold(block.name, value)

    def _close(self, pieces: list[str], at: int) -> int:
        """Closes the innermost block, or begins a loop's next turn; where to read on."""
        if not self.doubts.blocks:
            return at
        block = self.doubts.blocks[-1]
        if not block.values:
            self.doubts.blocks.pop()
            return at
        self._turn(block, self.doubts.turn(block, " ".join(pieces[block.start : at])))
        return block.start

    def _added(self, line: str) -> bool:
        """Remembers what `$list.Add(…)` and `$list.AddRange(…)` put behind a list, if the line is one."""
        found = _ADDED.fullmatch(line)
        before = self.variables.get(found["name"].lower()) if found else None
        if not found or not isinstance(before, list):
            return False
        what = found["what"].strip()
        words = [word for words in self._statements(what.removeprefix("@("), in_array=True) for word in words]
        self._hold(found["name"], [*before, *(words if found["several"] else [" ".join(words)])], more=True)
        return True

    def _value(self, named: re.Match[str]) -> str | list[str]:
        """What a variable holds; it stays as it is written where that is not known."""
        name = next(filter(None, named.groups())).lower()
        if name == "args":
            self.doubts.uses.passed[named[0]] = None
            return []
        if name in self.variables:
            self.doubts.used(name)
        else:
            self.doubts.uses.unknown[named[0]] = None
        return self.expansion.put(self.variables.get(name, named[0]))

    def _hold(self, name: str, value: str | list[str], more: bool = False) -> None:
        self.variables[name.lower()] = self.expansion.held(name, value)
        self.doubts.held(name.lower(), value, more)

    def _assigned(self, line: str) -> bool:
        """Remembers `$name = value` and `$env:name = value`, if the line is one."""
        if not (found := _ASSIGNED.fullmatch(line)):
            return False
        name, text = found[2], _CAST.sub("", found[4].strip(), count=1)
        if _EMPTY_LIST.fullmatch(text):
            self._hold(name, [])
            return True
        before = self.variables.get(name.lower(), "") if found[3] else ""
        inner = re.fullmatch(r"@\((.*)\)[ \t;]*", text, re.DOTALL)
        words = [word for words in self._statements(inner[1] if inner else text, in_array=inner is not None) for word in words]
        if inner or isinstance(before, list):
            self._hold(name, [*(before if isinstance(before, list) else []), *words], more=bool(found[3]))
        else:
            self._hold(name, before + " ".join(words), more=bool(found[3]))
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
        if ("@(" not in kept or kept.count("(") <= kept.count(")")) and ("@{" not in kept or kept.count("{") <= kept.count("}")):
            yield kept
            kept = ""
    yield kept


def _pieces(text: str) -> Iterator[str]:
    """What semicolons and braces part that stand neither in quotes, in brackets nor in a comment; the braces too."""
    start = depth = 0
    for found in _PARTING.finditer(text):
        if found[0] in (";", "{", "}") and depth <= 0:
            yield text[start : found.start()].strip()
            if found[0] != ";":
                yield found[0]
            start = found.end()
        depth += (found[0] in ("(", "@{") or (found[0] == "{" and depth > 0)) - (found[0] == ")" or (found[0] == "}" and depth > 0))
    yield text[start:].strip()


def _joined(value: str | list[str]) -> str:
    return value if isinstance(value, str) else " ".join(value)
