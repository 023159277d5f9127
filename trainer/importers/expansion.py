"""How much the variables of a script may come to: a few lines that double a variable would else fill the memory."""

from __future__ import annotations

from ..errors import fail

LONGEST = 32767  # characters of a variable, as Windows allows
MOST = 4 << 20  # characters that all variables put into a script together


class Expansion:
    """Counts what the variables of one script are replaced by."""

    def __init__(self) -> None:
        self.left = MOST

    def held(self, name: str, value: str | list[str]) -> str | list[str]:
        """The value that a variable gets; raises UserError for one that is too long."""
        if _length(value) > LONGEST:
            found = f"comes to more than {LONGEST} characters, which is no setting."
            raise fail(f"variable {name}", found, "Write its value out, or take the variable out of the script.")
        return value

    def put(self, value: str | list[str]) -> str | list[str]:
        """The value that stands in a variable's place; raises UserError if all of them come to too much."""
        self.left -= _length(value)
        if self.left < 0:
            raise fail("variables", f"come to more than {MOST} characters in this script.", "Give the trainer's command alone.")
        return value


def _length(value: str | list[str]) -> int:
    return len(value) if isinstance(value, str) else sum(len(word) + 1 for word in value)
