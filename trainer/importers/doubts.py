"""What is in doubt in a script that is read and not run: variables set in blocks that may be skipped, and what is not known."""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import shorten

from ..errors import fail
from .expansion import Expansion

LONGEST_SHOWN = 120  # characters of a command or a value in a note
MOST_TURNS = 1000  # of all loops of a script together
MOST_VALUES = 1000  # of a variable that are looked back on
MOST_OPEN = 1000  # blocks inside each other
Value = str | list[str]


@dataclass
class Uses:
    """What a command or a value is made of: variables, those in doubt with the value taken, and what is not known, as written."""

    names: dict[str, int] = field(default_factory=dict)  # with how often each was set until then
    doubted: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)
    passed: dict[str, None] = field(default_factory=dict)  # words that stand for the script's own arguments

    def add(self, other: Uses) -> None:
        """Takes over what another is made of, but for the names."""
        self.doubted |= other.doubted
        self.unknown |= other.unknown
        self.passed |= other.passed


@dataclass
class _Held:
    """A value that a variable got: in which branches, from what, and whether it goes on from the value before."""

    path: tuple[int, ...]
    value: str  # as it begins
    mark: int  # that tells values apart
    uses: Uses
    more: bool


@dataclass
class Block:
    """An open block; one that is sure to be read has no number. A loop has its variable, where it begins and the values to come."""

    kind: str
    number: int
    name: str = ""
    start: int = 0
    values: list[str] = field(default_factory=list)
    uses: Uses = field(default_factory=Uses)  # what the values are made of
    in_pattern: bool = False  # of a case: before the bracket that ends a pattern


class Doubts:
    """Follows in which block each variable gets its values, and which of them a command uses."""

    def __init__(self, expansion: Expansion) -> None:
        self.blocks: list[Block] = []
        self.chain = 0  # the number of what stands behind && or ||
        self.uses = Uses()
        self._held: dict[str, list[_Held]] = {}
        self._in_functions: list[tuple[Uses, int]] = []
        self._numbers = self._turns = 0
        self._expansion = expansion

    def number(self) -> int:
        """A number for one more branch."""
        self._numbers += 1
        return self._numbers

    def open(self, block: Block) -> None:
        """Begins a block; raises UserError where too many are open."""
        if len(self.blocks) >= MOST_OPEN:
            raise fail("blocks", "lie inside each other without end.", "Give the trainer's command alone.")
        block.number = block.number or self.chain
        self.chain = 0
        self.blocks.append(block)

    def turn(self, block: Block, body: str) -> str:
        """The next value of a loop that goes round once more; raises UserError if it does so too often."""
        self._turns += 1
        if self._turns > MOST_TURNS:
            raise fail("for", f"loops go round more than {MOST_TURNS} times.", "Give the trainer's command alone.")
        self._expansion.put(body)
        return block.values.pop(0)

    def held(self, name: str, value: Value, more: bool = False) -> None:
        """Notes that a variable gets a value, made of what was used since the last; `more` is added to what it held."""
        made_of, text = self.take(), _joined(value)
        more = more or name in made_of.names
        self._held.setdefault(name, []).append(_Held(self._path(), text[: LONGEST_SHOWN * 2], hash(text), made_of, more))

    def used(self, name: str) -> None:
        """Notes that a known variable is put into the text."""
        path, marks, sure = self._path(), set[int](), True
        held = self._held.get(name, [])
        self.uses.names[name] = len(held)
        for one in held[: -MOST_VALUES - 1 : -1]:
            self.uses.add(one.uses)
            marks.add(one.mark)
            is_sure = path[: len(one.path)] == one.path
            sure = sure and is_sure
            if is_sure and not one.more:
                break
        if not sure and len(marks) > 1:
            self.uses.doubted[name] = held[-1].value

    def take(self) -> Uses:
        """What was used since the last time."""
        uses, self.uses = self.uses, Uses()
        function = next((block.number for block in self.blocks if block.kind == "function"), 0)
        if function and uses.names:
            self._in_functions.append((uses, function))
        return uses

    def finish(self) -> None:
        """Puts what functions use into doubt where the script sets it anew behind them."""
        for uses, function in self._in_functions:
            for name, count in uses.names.items():
                held = self._held.get(name, [])
                if count and any(one.mark != held[count - 1].mark and function not in one.path for one in held[count:]):
                    uses.doubted[name] = held[count - 1].value

    def _path(self) -> tuple[int, ...]:
        """The branches that are open here; those that are sure to be read count for nothing."""
        return tuple(number for number in (*(block.number for block in self.blocks), self.chain) if number)


def notes(uses: Uses, values: str) -> list[str]:
    """What to tell of commands that use this; of what is not known only what stands in their values."""
    told = list[str]()
    if uses.doubted:
        taken = ", ".join(f"{name} {shown(value)}" for name, value in uses.doubted.items())
        one = len(uses.doubted) == 1
        told.append(f"what {', '.join(uses.doubted)} {'is' if one else 'are'} depends on what is not followed here; taken is {taken}")
    if uses.passed:
        stand = "stands" if len(uses.passed) == 1 else "stand"
        told.append(f"{', '.join(uses.passed)} {stand} for settings given to the script, which are not known here; left out")
    if unknown := [text for text in uses.unknown if text in values]:
        one = len(unknown) == 1
        said = "is not known here; it stays as it is" if one else "are not known here; they stay as they are"
        told.append(f"{', '.join(map(_cut, unknown))} {said} written")
    return told


def shown(text: str) -> str:
    """A command or a value on one line, as it begins."""
    return f"'{_cut(text)}'"


def _cut(text: str) -> str:
    return shorten(text, LONGEST_SHOWN, placeholder=" …")


def _joined(value: Value) -> str:
    return value if isinstance(value, str) else " ".join(value)
