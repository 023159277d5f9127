"""The text of a script of cmd: what belongs together, where brackets and commands end, and the words of a command."""

from __future__ import annotations

import re
from collections.abc import Iterator

_CONTINUED = re.compile(r"\^[ \t]*\n")
_COMMENT = re.compile(r"(?i)[ \t]*@?(?:rem(?:[ \t]|$)|:)")
_OPENING = re.compile(r"(?i)[ \t@]*(?:\(|(?:if|for)[ \t])")  # of a line whose brackets are blocks
REDIRECTION = re.compile(r"\d?[<>]+(?:&\d|[ \t]*[^\s;&|]+)?")


def chunks(text: str) -> Iterator[str]:
    """Lines without comments, those of a block in brackets together; of a block that is never closed each alone."""
    kept: list[str] = []
    depth = 0
    for line in _CONTINUED.sub(" ", text).split("\n"):
        if _COMMENT.match(line):
            continue
        kept.append(line.strip())
        if depth or _OPENING.match(line):
            depth = max(depth + sum(1 if char == "(" else -1 for _, char in _brackets(line, 0)), 0)
        if not depth:
            yield "\n".join(kept)
            kept.clear()
    yield from kept


def bracket_end(text: str, at: int) -> int:
    """The place behind the bracket that closes the one here; the text's end if none does."""
    depth = 0
    for place, char in _brackets(text, at):
        depth += 1 if char == "(" else -1
        if depth <= 0:
            return place + 1
    return len(text) + 1


def command_end(text: str, at: int) -> int:
    """Where a plain command ends: at a separator that is neither quoted nor escaped, or at a closing bracket that it did not open."""
    depth = 0
    for place, char in _unquoted(text, at):
        if char in "&|\n" and not _is_target(text, place):
            return place
        depth += (char == "(") - (char == ")")
        if depth < 0:
            return place
    return len(text)


def words_of(text: str) -> list[str]:
    """The words of a plain command without quotes and escapes; where its output goes is left out."""
    words: list[str] = []
    at = 0
    while at < len(text):
        if text[at] in " \t\n":
            at += 1
        elif skipped := REDIRECTION.match(text, at):
            at = skipped.end()
        else:
            word, at = _word(text, at)
            words.append(word)
    return words


def _word(text: str, at: int) -> tuple[str, int]:
    current, quoted = "", False
    while at < len(text) and (quoted or text[at] not in " \t\n"):
        if text[at] == '"':
            quoted = not quoted
        elif text[at] == "^" and not quoted and at + 1 < len(text):
            at += 1
            current += text[at]
        else:
            current += text[at]
        at += 1
    return current, at


def _brackets(text: str, at: int) -> Iterator[tuple[int, str]]:
    return ((place, char) for place, char in _unquoted(text, at) if char in "()")


def _unquoted(text: str, at: int) -> Iterator[tuple[int, str]]:
    """Every character that is neither in quotes nor escaped, with its place; a quote ends with its line."""
    quoted, skip = False, False
    for place in range(at, len(text)):
        char = text[place]
        if skip:
            skip = False
        elif char == '"':
            quoted = not quoted
        elif char == "\n" or not quoted:
            quoted = False
            skip = char == "^"
            if not skip:
                yield place, char


def _is_target(text: str, place: int) -> bool:
    """Whether an & belongs to a redirection such as 2>&1."""
    return text[place] == "&" and place > 0 and text[place - 1] in "<>"
