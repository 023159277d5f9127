"""What can be wrong with a user's input, said so that it can be put right."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

Place = tuple[int | str, ...]  # keys and numbers that lead to a setting


@dataclass(frozen=True)
class Problem:
    """One thing to put right: the setting or file, what was found there, and what to do."""

    where: str
    found: str
    cure: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.found}" + (f" {self.cure}" if self.cure else "")


class UserError(ValueError):
    """Bad input from the user; carries every problem found, not only the first."""

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems: list[Problem] = [problems] if isinstance(problems, Problem) else list(dict.fromkeys(problems))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class Interrupted(Exception):
    """The listener asked for a cancel; state up to the last finished step is on disk."""


def fail(where: str, found: str, cure: str = "") -> UserError:
    """Builds a `UserError` of one problem, to be raised by the caller."""
    return UserError(Problem(where, found, cure))


def first_line(error: BaseException) -> str:
    """What an error of a library says first; its kind if it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def closest(name: str, known: Sequence[str], least: float = 0.6) -> str:
    """The known name that is spelt most like this one, at least to this ratio of `difflib`; empty if none is."""
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=least)), "")


def nearest(name: str, known: Sequence[str]) -> str:
    """A hint naming the closest known name, or all of them if none is close."""
    close = closest(name, known)
    return f"Did you mean '{close}'?" if close else f"Known names: {', '.join(sorted(known))}."


def from_validation(
    error: ValidationError,
    known: Callable[[Place], Sequence[str]],
    root: str = "",
    kinds: Sequence[str] = (),
    hint: Callable[[Place], str] | None = None,
) -> UserError:
    """Turns pydantic's report into ours: every problem, each with setting, value and cure.

    `known` gives the settings that there are where a wrong one stands, `hint` what to do about the one at a place, if that is
    more than to take the nearest of them; `kinds` are tags of unions in lists, which pydantic puts between the place in the
    list and the setting.
    """
    problems = []
    for item in error.errors():
        places = zip(("", *item["loc"]), item["loc"], strict=False)
        where = ".".join([root, *(str(part) for before, part in places if not (isinstance(before, int) and part in kinds))]).strip(".")
        if item["type"] == "extra_forbidden":
            cure = hint(item["loc"]) if hint else nearest(str(item["loc"][-1]), known(item["loc"]))
            problems.append(Problem(where, "is not a setting.", cure))
        elif item["type"] == "model_type":
            names = ", ".join(known((*item["loc"], "")))
            problems.append(Problem(where, f"{item['input']!r} is not accepted.", f"Give its settings by name: {names}."))
        else:
            why = item["msg"].removeprefix("Value error, ").rstrip(".")
            problems.append(Problem(where, f"{item['input']!r} is not accepted: {why}."))
    return UserError(problems)
