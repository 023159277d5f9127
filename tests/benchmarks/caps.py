"""Steps under a hard cap of the card's memory: `python tests/benchmarks/caps.py [row ...] [--eager] [--setting WORDS]`, see ROWS.

A row is a piece of work and the GB of a card that it must fit: the process may allocate a GiB less, for what the driver takes. It is
timed without a cap first. The planner chooses how, with and without the cap, unless `--setting` says it for the cap; `--eager`
measures without compilation and fp8 products too; `--small` runs on a CPU, uncapped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.benchmarks.full_size import as_json  # noqa: E402
from tests.benchmarks.settings import choices_of, words_of  # noqa: E402
from tests.benchmarks.training import GIB, STEPS, WARM_UP, Measured, Way, Work, card_of, measured, ours, release, timed  # noqa: E402

if TYPE_CHECKING:
    import torch

    from trainer.memory.choices import Choices

ATTENTION = ("to_q", "to_k", "to_v", "to_out.0")
TURN = WARM_UP + STEPS  # steps of one expert before it is the other's turn


@dataclass(frozen=True)
class Capped:
    """A piece of work, and the GB of a card that it must fit."""

    work: Work
    gb: int

    @property
    def cap(self) -> float:
        """GiB that may be allocated."""
        return self.gb - 1.0

    def __str__(self) -> str:
        return f"{self.work} in {self.gb} GB"


SMALLEST, SMALL, LONG = (9, 384, 384), (17, 512, 512), (81, 512, 512)
WAN, OF_TWO = "Wan 2.1 14B", "Wan 2.2 A14B"
ROWS = {
    1: Capped(Work(WAN, SMALLEST), 8),
    2: Capped(Work(WAN, SMALL, batch=2), 16),
    3: Capped(Work(WAN, LONG), 16),
    4: Capped(Work(WAN, (81, 480, 832)), 24),
    5: Capped(Work(WAN, SMALL, batch=4), 24),
    6: Capped(Work(WAN, (33, 768, 768), batch=8), 48),
    7: Capped(Work("HunyuanVideo", rank=128, layers=ATTENTION), 16),
    8: Capped(Work("FramePack"), 12),
    9: Capped(Work(OF_TWO, SMALLEST), 8),
}
WITHOUT_COMPILER = (16, 24)  # GB of the rows that must also fit without compilation and fp8 products


@dataclass(frozen=True)
class Result:
    """A capped row's figures: without a cap, and under it by the words of the choices; what went wrong in place of a figure."""

    row: Capped
    free: str  # the choices without a cap
    uncapped: Measured | str
    under_cap: dict[str, Measured | str]

    def ratio(self, words: str) -> float:
        """Seconds under the cap over those without; not a number where either failed."""
        own = self.under_cap[words]
        return float("nan") if isinstance(own, str) or isinstance(self.uncapped, str) else own.seconds / self.uncapped.seconds

    def __str__(self) -> str:
        lines = [f"{self.row}", f"  without a cap, {self.free}: {self.uncapped}"]
        lines += [f"  {words}: {found}  ratio {self.ratio(words):.2f}" for words, found in self.under_cap.items()]
        return "\n".join(lines)


@contextmanager
def capped(device: torch.device, gib: float) -> Iterator[None]:
    """Inside the block no more than so many GiB of a card can be allocated by this process; 0 and a CPU have no cap."""
    import torch

    if device.type != "cuda" or not gib:
        yield
        return
    torch.cuda.empty_cache()
    whole = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(gib * GIB / whole, 1.0), device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


def result(number: int, device: torch.device, setting: str = "", eager: bool | None = None) -> Result:
    """A row, measured; `eager` None goes by the GB."""
    from tests.benchmarks.plan import planned

    row = ROWS[number]
    work = replace(row.work, small=device.type == "cpu")
    free = planned(work, device)
    uncapped = tried(work, free, device, 0.0)
    under = [choices_of(setting) if setting else planned(work, device, row.cap)]
    if row.gb in WITHOUT_COMPILER if eager is None else eager:
        under.append(planned(work, device, row.cap, compiler=False))
    return Result(row, words_of(free), uncapped, {words_of(choices): tried(work, choices, device, row.cap) for choices in under})


def tried(work: Work, choices: Choices, device: torch.device, cap: float) -> Measured | str:
    """The figures, or what went wrong: a cap that is too small is a finding."""
    import torch

    try:
        with capped(device, cap):
            found = both_experts(work, choices, device) if work.model == OF_TWO else measured(lambda: ours(work, choices, device), device)
    except Exception as error:  # one row must not cost the others' figures
        if device.type == "cuda":
            torch.cuda.empty_cache()
        return f"{type(error).__name__}: {str(error)[:400]}"
    print(f"  {work} {words_of(choices)}: {found}", flush=True)
    print(as_json({"work": str(work), "choices": str(choices), "cap": cap, **found.figures}), file=sys.stderr, flush=True)
    return found


def both_experts(work: Work, choices: Choices, device: torch.device) -> Measured:
    """Steps of one expert, then of the other once it has taken the first's place: the mean of their seconds, the larger peaks.

    `first` is what compiles and changes over.
    """
    built = ours(work, choices, device, Way(switch_every=TURN))
    try:
        one, other = timed(built, device), timed(built, device)
    finally:
        release(built, device)
    return replace(
        other, seconds=(one.seconds + other.seconds) / 2, least=min(one.least, other.least), first=one.first + other.first,
        allocated_gib=max(one.allocated_gib, other.allocated_gib), reserved_gib=max(one.reserved_gib, other.reserved_gib),
    )  # fmt: skip


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", type=int, help="; ".join(f"{number}: {row}" for number, row in ROWS.items()))
    parser.add_argument("--setting", default="", help="how under the cap, in the words of settings.py; default: the planner's choice")
    parser.add_argument("--eager", action="store_true", default=None, help="without compilation and fp8 products too")
    parser.add_argument("--small", action="store_true", help="on the CPU, two layers")
    given = parser.parse_args()
    device: Any = torch.device("cpu" if given.small else "cuda:0")
    print(f"{card_of(device)}, torch {torch.__version__}", flush=True)
    for number in given.rows or ROWS:
        print(result(number, device, given.setting, given.eager), flush=True)


if __name__ == "__main__":
    main()
