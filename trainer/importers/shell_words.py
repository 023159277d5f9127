"""The words of shell scripts, read and never run: quotes, variables, arrays, line continuations.

The rules are those of POSIX shells (quoting, field splitting) and of bash for arrays. What a script computes while it runs
is not known here: such variables stay as they are written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .doubts import Doubts, Uses
from .expansion import Expansion

_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?:\[[@*]\])?(?::?-([^}]*))?\}|([A-Za-z_]\w*))")
_ARGUMENTS = re.compile(r"\$(?:[@*]|\{[@*][^}\n]*\})")  # all that the script got
_UNREAD = re.compile(r"\$(?:\{[^}\n]*\}|\d)")  # an expression, or one of the script's arguments
HEREDOC = re.compile(r"\d*<<(?P<tabs>-?)(?!<)[ \t]*(?:'(?P<single>[^'\n]+)'|\"(?P<double>[^\"\n]+)\"|\\?(?P<plain>[^\s'\";&|<>()\\]+))")
_DRIVE = re.compile(r"[A-Za-z]:(\\.*)?")


@dataclass
class Statement:
    """The words of one command, the variables set just for it, and what it is made of."""

    words: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    uses: Uses = field(default_factory=Uses)


class Words:
    """Reads the words of a script at a place; assignments are remembered."""

    def __init__(self) -> None:
        self.variables: dict[str, str | list[str]] = {}
        self.text, self.at = "", 0
        self.expansion = Expansion()
        self.doubts = Doubts(self.expansion)

    def assign(self, name: str, more: bool) -> str:
        """Reads the value of NAME= or NAME+=, a word or an array in brackets; the array as text is its words joined."""
        before = self.variables.get(name, "")
        if self.text.startswith("(", self.at):
            self.at += 1
            words: list[str] = list(before) if more and isinstance(before, list) else []
            while self.at < len(self.text) and not self.text.startswith(")", self.at):
                if self.text[self.at] == "\n":
                    self.at += 1
                elif self._skip_array_blanks():
                    before_word, found = self.at, self.word()
                    words += found
                    self.at += self.at == before_word  # a stray separator
            self.at += 1
            self.hold(name, words, more)
            return " ".join(words)
        value = " ".join(self.word(split=False))
        self.hold(name, f"{before}{value}" if more and isinstance(before, str) else value, more)
        return value

    def hold(self, name: str, value: str | list[str], more: bool = False) -> None:
        """Gives a variable its value; `more` was added to what it held."""
        self.variables[name] = self.expansion.held(name, value)
        self.doubts.held(name, value, more)

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

    def word(self, split: bool = True) -> list[str]:
        """One word as it is after quotes and variables; an unquoted variable may give none or several."""
        words, current, quoted = [], "", False
        while self.at < len(self.text) and self.text[self.at] not in " \t\r\n;&|()":
            char = self.text[self.at]
            if char == "<" and HEREDOC.match(self.text, self.at):
                break
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
        if passed := _ARGUMENTS.match(self.text, self.at):
            self.at = passed.end()
            self.doubts.uses.passed[passed[0]] = None
            return []
        found = _VARIABLE.match(self.text, self.at)
        if not found:
            return self._unread()
        self.at = found.end()
        name = found[1] or found[3]
        value = self.variables.get(name, found[2])
        if value is None:
            self.doubts.uses.unknown[found[0]] = None
            return found[0]
        if name in self.variables:
            self.doubts.used(name)
        self.expansion.put(value)
        if isinstance(value, list):
            return value if split or keep_arrays else " ".join(value)
        return value.split() if split else value

    def _unread(self) -> str:
        """An expression of a $ that is not worked out, as it is written."""
        found = _UNREAD.match(self.text, self.at)
        self.at = found.end() if found else self.at + 1
        if not found:
            return "$"
        self.doubts.uses.unknown[found[0]] = None
        return found[0]

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
        if text.startswith("$(dirname "):
            return "."
        self.doubts.uses.unknown[text] = None
        return text
