"""Options of the command line: numbers in a range, and settings as options."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic import ValidationError

from .errors import from_validation
from .settings import Settings

S = TypeVar("S", bound=Settings)


def at_least_one(text: str) -> int:
    """A whole number from 1."""
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def within(low: float, high: float) -> Callable[[str], float]:
    """A number from `low` to `high`."""

    def number(text: str) -> float:
        if not low <= (value := float(text)) <= high:  # neither is NaN
            raise argparse.ArgumentTypeError(f"{text} is not in {low} to {high}")
        return value

    return number


def seed(text: str) -> int:
    """A seed, 0 to 2⁵³ - 1."""
    if not 0 <= (number := int(text)) < 2**53:
        raise ValueError(text)
    return number


def add_numbers(command: argparse.ArgumentParser, part: type[Settings], names: Sequence[str]) -> None:
    """Adds an option for each of these whole-number settings, described as everywhere."""
    for name in names:
        field = part.model_fields[name]
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        about, unit = f"{field.description} Default: {field.default}.", str(extra.get("unit") or "n").upper()
        command.add_argument(f"--{name.replace('_', '-')}", type=int, default=field.default, help=about, metavar=unit)


def checked(part: type[S], arguments: argparse.Namespace) -> S:
    """The options that are settings of `part`; raises UserError for what is not accepted."""
    try:
        return part(**{name: getattr(arguments, name) for name in part.model_fields})
    except ValidationError as error:
        raise from_validation(error, lambda _: list(part.model_fields)) from None
