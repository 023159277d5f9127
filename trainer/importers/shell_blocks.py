"""Shell scripts, read and never run: statements, blocks, `for` over a list of words, `eval`.

Conditions are not evaluated: each branch is read, and what depends on them is told.
"""

from __future__ import annotations

import re

from .doubts import Block
from .shell_words import HEREDOC, Statement, Words

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_FUNCTION = re.compile(r"(?:function[ \t]+[\w.:-]+[ \t]*(?:\([ \t]*\))?|[A-Za-z_][\w.:-]*[ \t]*\([ \t]*\))\s*(?=[{(])")
_BEFORE = {"do", "!", "time", "exec", "nohup", "sudo"}  # words before a command that change nothing here
_LOOPS = ("while", "until", "for")
_OPENING = {"if", "while", "until", "{"}
_BRANCHES = {"then", "else", "elif"}
_CLOSING = {"fi": ("if",), "done": _LOOPS, "esac": ("case",), "}": ("{", "function"), ")": ("(", "function")}
_SEPARATOR = re.compile(r"&&|\|\||;;&?|;&|[\n;&|()]")
_SEVERAL = re.compile(r"[*?`{\[]")  # of a loop's word: what a shell replaces by others
_REDIRECTION = re.compile(r"(\d*|&)[<>]+(&\d*|[ \t]*[^\s;&|]+)?")
DEPTH = 4  # evals inside evals


class Script(Words):
    """Reads a script statement by statement; assignments are remembered, nothing is run."""

    def __init__(self) -> None:
        super().__init__()
        self.exported: dict[str, str] = {}
        self.statements: list[Statement] = []
        self.unread: list[str] = []
        self._heredocs: list[re.Match[str]] = []  # of this line
        self._end = ""  # what ended the last statement
        self._in_function = False  # whether the next block is one's body
        self._base = 0  # blocks that were open before the text

    def run(self, text: str, depth: int = 0) -> None:
        """Reads all statements of a text."""
        kept = self.text, self.at, self._base
        self.text, self.at, self._base = text, 0, len(self.doubts.blocks)
        while self.at < len(self.text):
            statement = self._statement()
            end, begun = self._end, len(self.statements)
            if statement.words[:1] == ["eval"] and depth < DEPTH:
                self.run(" ".join(statement.words[1:]), depth + 1)
                for inner in self.statements[begun:]:
                    inner.uses.add(statement.uses)
            elif statement.words:
                self.statements.append(statement)
            self._between(end)
        del self.doubts.blocks[self._base :]
        self.text, self.at, self._base = kept
        if not depth:
            self.doubts.finish()

    def _statement(self) -> Statement:
        """The words up to the end of a line or a separator; assignments before the first word are taken out."""
        statement, exporting, start = Statement(), False, self.at
        assigned: dict[str, str] = {}
        while self._skip_blanks():
            start = -1
            in_pattern = self._in_pattern()
            if not statement.words and not in_pattern:
                if function := _FUNCTION.match(self.text, self.at):
                    self.at, self._in_function = function.end(), True
                    continue
                if found := _ASSIGNMENT.match(self.text, self.at):
                    self.at = found.end()
                    assigned[found[1]] = self.assign(found[1], bool(found[2]))
                    continue
            words = self.word()
            if not statement.words and len(words) == 1 and self._keyword(words[0], in_pattern):
                continue
            if words in (["export"], ["declare"], ["local"]) and not statement.words:
                exporting = words == ["export"]
                continue
            statement.words += words
        if start >= 0 and self._end == "\n" and self.doubts.chain:
            self._end = "&&"  # a line that ends behind && goes on
        if exporting:
            self.exported.update(assigned)
            statement.words.clear()
        elif statement.words:
            statement.environment = assigned
        return self._begun(statement)

    def _keyword(self, word: str, in_pattern: bool) -> bool:
        """Opens or closes blocks; False for any other word."""
        doubts = self.doubts
        if word in _CLOSING and (word == "esac" or not in_pattern):
            self._close(word)
        elif in_pattern:
            return False
        elif word in _OPENING:
            self._open(word)
        elif word in _BRANCHES:
            if self._innermost("if"):
                doubts.blocks[-1].number = doubts.number()
        else:
            return word in _BEFORE
        return True

    def _open(self, kind: str) -> None:
        sure = kind == "{" and not self._in_function
        kind = "function" if self._in_function and kind in "{(" else kind
        self._in_function = False
        self.doubts.open(Block(kind, 0 if sure else self.doubts.number()))

    def _close(self, word: str) -> None:
        """Closes the innermost block of a kind, or begins a loop's next turn."""
        blocks = self.doubts.blocks
        place = next((n for n in range(len(blocks) - 1, self._base - 1, -1) if blocks[n].kind in _CLOSING[word]), None)
        if place is None:
            return
        del blocks[place + 1 :]
        block = blocks[place]
        if block.values:
            value = self.doubts.turn(block, self.text[block.start : self.at])
            self._turn(block, value)
            self.at = block.start
        else:
            blocks.pop()

    def _turn(self, block: Block, value: str) -> None:
        self.doubts.uses.add(block.uses)
        self.hold(block.name, value)

    def _innermost(self, kind: str) -> bool:
        blocks = self.doubts.blocks
        return len(blocks) > self._base and blocks[-1].kind == kind

    def _in_pattern(self) -> bool:
        return self._innermost("case") and self.doubts.blocks[-1].in_pattern

    def _begun(self, statement: Statement) -> Statement:
        """A statement with what it is made of; one that begins a loop or a case, or is a case's pattern, has no words."""
        statement.uses, words = self.doubts.take(), statement.words
        if self._in_pattern():
            words.clear()
        elif words[:1] == ["case"]:
            self.doubts.open(Block("case", self.doubts.number(), in_pattern=True))
            words.clear()
        elif words[:1] in (["for"], ["select"]):
            self._for(statement)
            words.clear()
        return statement

    def _for(self, statement: Statement) -> None:
        """Begins a loop; where its values are not known its variable is not, and its body may be skipped."""
        words, uses = statement.words, statement.uses
        name, values = words[1] if len(words) > 1 else "", words[3:] if words[0] == "for" and words[2:3] == ["in"] else []
        if not values or uses.unknown or uses.passed or any(map(_SEVERAL.search, values)):
            self.variables.pop(name, None)
            self.doubts.open(Block("for", self.doubts.number()))
            return
        block = Block("for", 0, name, self.at, values[1:], uses)
        self.doubts.open(block)
        self._turn(block, values[0])

    def _between(self, end: str) -> None:
        """What the end of a statement says of the next: whether it is in a bracket, in another branch, or behind && or ||."""
        doubts = self.doubts
        if self._in_pattern():
            if end == ")":
                doubts.blocks[-1].in_pattern = False
                doubts.blocks[-1].number = doubts.number()
            return
        if end == "(":
            self._open("(")
        elif end == ")":
            self._close(end)
        elif end in (";;", ";&", ";;&") and self._innermost("case"):
            doubts.blocks[-1].in_pattern = True
        if end == "||" or (end == "&&" and not doubts.chain):
            doubts.chain = doubts.number()
        elif end not in ("|", "&&", "("):
            doubts.chain = 0

    def _skip_blanks(self) -> bool:
        """Goes to the next word; False at the end of the statement, which is passed."""
        text = self.text
        self._end = ""
        while self.at < len(text):
            char = text[self.at]
            if text.startswith("\\\n", self.at):
                self.at += 2
            elif char in " \t\r":
                self.at += 1
            elif char == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            elif heredoc := HEREDOC.match(text, self.at):
                self._heredocs.append(heredoc)
                self.at = heredoc.end()
            elif found := _REDIRECTION.match(text, self.at):
                self.at = found.end()  # where output goes is no setting
            elif found := _SEPARATOR.match(text, self.at):
                self.at, self._end = found.end(), found[0]
                if self._end == "\n":
                    self._skip_heredocs()
                return False
            else:
                return True
        return False

    def _skip_heredocs(self) -> None:
        """Passes the texts that the line before gives to its commands; they are no part of the script."""
        for found in self._heredocs:
            name = found["single"] or found["double"] or found["plain"]
            tabs = r"\t*" if found["tabs"] else ""
            line = re.compile(rf"^{tabs}{re.escape(name)}\r?(?:\n|\Z)", re.MULTILINE)
            if end := line.search(self.text, self.at):
                self.at = end.end()
            else:
                self.unread.append(f"the text behind {found[0]} has no end; it is read as if it were part of the script")
        self._heredocs.clear()
