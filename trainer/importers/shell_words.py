"""Shell scripts, read and never run: quotes, variables, arrays, line continuations, `eval`.

The rules are those of POSIX shells (quoting, field splitting) and of bash for arrays. What a script computes while it runs
is not known here: such variables stay as they are written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .expansion import Expansion

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?:\[[@*]\])?(?::?-([^}]*))?\}|([A-Za-z_]\w*))")
_KEYWORDS = {"then", "else", "elif", "do", "if", "while", "{", "!", "time", "exec", "nohup", "sudo"}
_DRIVE = re.compile(r"[A-Za-z]:(\\.*)?")
DEPTH = 4  # evals inside evals
_REDIRECTION = re.compile(r"(\d*|&)[<>]+(&\d*|[ \t]*[^\s;&|]+)?")


@dataclass
class Statement:
    """The words of one command and the variables set just for it."""

    words: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)


class Script:
    """Reads a script statement by statement; assignments are remembered, nothing is run."""

    def __init__(self) -> None:
        self.variables: dict[str, str | list[str]] = {}
        self.exported: dict[str, str] = {}
        self.statements: list[Statement] = []
        self.unread: list[str] = []
        self.text, self.at = "", 0
        self.expansion = Expansion()

    def run(self, text: str, depth: int = 0) -> None:
        """Reads all statements of a text."""
        kept = self.text, self.at
        self.text, self.at = text, 0
        while self.at < len(self.text):
            statement = self._statement()
            while statement.words and statement.words[0] in _KEYWORDS:
                statement.words.pop(0)
            if statement.words[:1] == ["eval"] and depth < DEPTH:
                self.run(" ".join(statement.words[1:]), depth + 1)
            elif statement.words:
                self.statements.append(statement)
        self.text, self.at = kept

    def _statement(self) -> Statement:
        """The words up to the end of a line or a separator; assignments before the first word are taken out."""
        statement, exporting = Statement(), False
        assigned: dict[str, str] = {}
        while self._skip_blanks():
            found = None if statement.words else _ASSIGNMENT.match(self.text, self.at)
            if found:
                self.at = found.end()
                assigned[found[1]] = self._assign(found[1], bool(found[2]))
                continue
            words = self._word()
            if words in (["export"], ["declare"], ["local"]) and not statement.words:
                exporting = words == ["export"]
                continue
            statement.words += words
        if exporting:
            self.exported.update(assigned)
            statement.words.clear()
        elif statement.words:
            statement.environment = assigned
        return statement

    def _skip_blanks(self) -> bool:
        """Goes to the next word; False at the end of the statement, which is passed."""
        text = self.text
        while self.at < len(text):
            char = text[self.at]
            if text.startswith("\\\n", self.at):
                self.at += 2
            elif char in " \t\r":
                self.at += 1
            elif char == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            elif found := _REDIRECTION.match(text, self.at):
                self.at = found.end()  # where output goes is no setting
            elif char in "\n;&|()":
                self.at += 1
                return False
            else:
                return True
        return False

    def _assign(self, name: str, more: bool) -> str:
        """Reads the value of NAME= or NAME+=, a word or an array in brackets; the array as text is its words joined."""
        before = self.variables.get(name, "")
        if self.text.startswith("(", self.at):
            self.at += 1
            words: list[str] = list(before) if more and isinstance(before, list) else []
            while self.at < len(self.text) and not self.text.startswith(")", self.at):
                if self.text[self.at] == "\n":
                    self.at += 1
                elif self._skip_array_blanks():
                    before_word, found = self.at, self._word()
                    words += found
                    self.at += self.at == before_word  # a stray separator
            self.at += 1
            self.variables[name] = self.expansion.held(name, words)
            return " ".join(words)
        value = " ".join(self._word(split=False))
        self.variables[name] = self.expansion.held(name, f"{before}{value}" if more and isinstance(before, str) else value)
        return value

    def _skip_array_blanks(self) -> bool:
        """Goes to the next word of an array; False at a line's end or the closing bracket."""
        while self.at < len(self.text):
            if self.text.startswith("\\\n", self.at):
                self.at += 2
            elif self.text[self.at] in " \t\r":
                self.at += 1
            elif self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return self.text[self.at] not in "\n)"
        return False

    def _word(self, split: bool = True) -> list[str]:
        """One word as it is after quotes and variables; an unquoted variable may give none or several."""
        words, current, quoted = [], "", False
        while self.at < len(self.text) and self.text[self.at] not in " \t\r\n;&|()":
            char = self.text[self.at]
            if char == "'":
                end = self.text.find("'", self.at + 1)
                end = len(self.text) if end < 0 else end
                current += self.text[self.at + 1 : end]
                self.at, quoted = end + 1, True
            elif char == '"':
                self.at += 1
                parts = self._quoted()
                quoted = quoted or parts != []
                current += parts[0] if parts else ""
                for part in parts[1:]:
                    words.append(current)
                    current = part
            elif char == "\\":
                current += self._escaped(current)
            elif char == "$":
                parts = self._variable(split)
                if isinstance(parts, str):
                    current += parts
                    continue
                for n, part in enumerate(parts):
                    if n:
                        words.append(current)
                        current = ""
                    current += part
            else:
                current += char
                self.at += 1
        return [*words, current] if current or quoted else words

    def _escaped(self, current: str) -> str:
        """What a backslash outside quotes stands for; in a Windows path it is kept."""
        following = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if following == "\n":
            return ""
        return "\\" + following if _DRIVE.fullmatch(current) else following

    def _quoted(self) -> list[str]:
        """The text up to the closing double quote; "${array[@]}" gives a word for each element, and none if there are none."""
        parts, empty = [""], False
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            if char == "\\" and self.text[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\", "\n"):
                parts[-1] += self.text[self.at + 1].replace("\n", "")
                self.at += 2
            elif char == "$":
                found = self._variable(split=False, keep_arrays=True)
                if isinstance(found, str):
                    parts[-1] += found
                else:
                    empty = not found
                    parts[-1] += found[0] if found else ""
                    parts += found[1:]
            else:
                parts[-1] += char
                self.at += 1
        self.at += 1
        return [] if empty and parts == [""] else parts

    def _variable(self, split: bool, keep_arrays: bool = False) -> str | list[str]:
        """The value of $NAME or ${NAME}: text, or words where it is split; as written if it is not known."""
        if self.text.startswith("$(", self.at):
            return self._computed()
        found = _VARIABLE.match(self.text, self.at)
        if not found:
            self.at += 1
            return "$"
        self.at = found.end()
        value = self.variables.get(found[1] or found[3], found[2])
        if value is None:
            return found[0]
        self.expansion.put(value)
        if isinstance(value, list):
            return value if split or keep_arrays else " ".join(value)
        return value.split() if split else value

    def _computed(self) -> str:
        """A $(command) as it is written; the script's own folder is ".", for files beside it."""
        start, depth = self.at, 0
        while self.at < len(self.text):
            char = self.text[self.at]
            depth += (char == "(") - (char == ")")
            self.at += 1
            if char == ")" and depth == 0:
                break
        text = self.text[start : self.at]
        return "." if text.startswith("$(dirname ") else text
