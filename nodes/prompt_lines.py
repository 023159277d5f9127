"""Reads sample prompts and clip sizes written one per line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from ..trainer.errors import Problem, UserError
from ..trainer.job import Bucket, SamplePrompt

T = TypeVar("T")
SYNTAX = "prompt | negative | frames x height x width | seed"


def parse_prompts(text: str) -> list[SamplePrompt]:
    """One sample prompt per line as `prompt | negative | FxHxW | seed`, all but the first part optional.

    Empty lines and lines beginning with # are skipped. Raises UserError naming every line that cannot be read.
    """
    lines = [(number, line) for number, line in _written(text) if not line.startswith("#")]
    return _each(lines, "prompts", _parse_prompt)


def parse_buckets(text: str) -> list[Bucket]:
    """One clip size per line, such as 49x480x832; raises UserError naming every line that cannot be read."""
    return _each(_written(text), "sizes", Bucket.parse)


def parse_list(text: str) -> list[str]:
    """The parts between commas, semicolons or line breaks."""
    return [part.strip() for part in re.split(r"[,;\n]", text) if part.strip()]


def _written(text: str) -> list[tuple[int, str]]:
    """Lines that are not empty, stripped, each after its number, from 1."""
    return [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]


def _each(lines: list[tuple[int, str]], name: str, parse: Callable[[str, str], T]) -> list[T]:
    """What `parse` makes of each line and its place, such as "sizes, line 2"; raises UserError with the problems of all lines."""
    parsed, problems = list[T](), list[Problem]()
    for number, line in lines:
        try:
            parsed.append(parse(line, f"{name}, line {number}"))
        except UserError as error:
            problems += error.problems
    if problems:
        raise UserError(problems)
    return parsed


def _parse_prompt(line: str, where: str) -> SamplePrompt:
    parts = [part.strip() for part in line.split("|")]
    if len(parts) > 4:
        raise UserError(Problem(where, f"has {len(parts)} parts.", f"Write {SYNTAX}; a prompt cannot hold a |."))
    prompt, negative, size, seed = [*parts, "", "", ""][:4]
    if seed and not (seed.isdecimal() and int(seed) < 2**53):
        raise UserError(Problem(where, f"'{seed}' is not a seed.", "Write a whole number from 0 to 9007199254740991."))
    bucket = Bucket.parse(size, where) if size else None
    return SamplePrompt(prompt=prompt, negative=negative, size=bucket, seed=int(seed or 0))
