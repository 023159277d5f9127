"""Compiled blocks over clips of many sizes: `python tests/benchmarks/bucket_shapes.py [model] [--small]`.

Twelve sizes in turn, each several times. Counted are the graphs that the compiler makes, what it could not take as one graph, and the
times that it gave a function up; past its limit of recompilations PyTorch would silently compute eagerly, which here is an error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.benchmarks.full_size import Size  # noqa: E402
from tests.benchmarks.settings import choices_of  # noqa: E402
from tests.benchmarks.training import Way, Work, card_of, ours, release, synchronize, traced_only  # noqa: E402

if TYPE_CHECKING:
    import torch

MODEL, WORDS = "Wan 2.1 1.3B", "bf16 compiled selective"
SIDES = ((256, 256), (256, 384), (384, 256), (384, 384), (320, 512), (512, 320))
SIZES: tuple[Size, ...] = tuple((frames, *sides) for frames in (9, 17) for sides in SIDES)
SMALL_SIZES: tuple[Size, ...] = tuple((frames, 32 * height, 32 * width) for frames in (1, 5, 9) for height in (1, 2) for width in (2, 3))
ROUNDS = 2


@dataclass(frozen=True)
class Counted:
    """What the compiler did over so many shapes."""

    shapes: int
    steps: int
    graphs: int
    breaks: int
    whole: bool  # whether each function that it took it could compile
    seconds: list[float]

    @property
    def fell_back(self) -> bool:
        """Whether anything ran eagerly that was to be compiled."""
        return bool(self.breaks) or not self.whole or not self.graphs

    def __str__(self) -> str:
        late, all_of_them = self.seconds[len(self.seconds) // 2 :], "all functions compiled" if self.whole else "SOME FUNCTIONS GIVEN UP"
        counts = f"{self.shapes} shapes, {self.steps} steps: {self.graphs} graphs, {self.breaks} breaks, {all_of_them}"
        return f"{counts}; steps of the second half {min(late):.2f} to {max(late):.2f} s"


def counted(device: torch.device, model: str = MODEL, words: str = WORDS, sizes: Sequence[Size] = (), rounds: int = ROUNDS) -> Counted:
    """Trains on each size so many times and counts; on a CPU the graphs are run as they are traced."""
    import time

    import torch
    from torch._dynamo.utils import counters

    small = device.type == "cpu"
    sizes = sizes or (SMALL_SIZES if small else SIZES)
    torch._dynamo.reset()
    counters.clear()
    seconds: list[float] = []
    no_fallback = torch._dynamo.config.patch(fail_on_recompile_limit_hit=True)
    with no_fallback, traced_only() if small else nullcontext():
        built = ours(Work(model, small=small), choices_of(words), device, Way(sizes=sizes))
        try:
            for _ in range(rounds * len(sizes)):  # an epoch visits each size once
                start = time.perf_counter()
                built.step()
                synchronize(device)
                seconds.append(time.perf_counter() - start)
        finally:
            release(built, device)
    frames, breaks = counters["frames"], sum(counters["graph_break"].values())
    return Counted(len(sizes), len(seconds), counters["stats"]["unique_graphs"], breaks, frames["ok"] == frames["total"] > 0, seconds)


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=MODEL)
    parser.add_argument("--setting", default=WORDS)
    parser.add_argument("--small", action="store_true", help="on the CPU, two layers")
    given = parser.parse_args()
    device = torch.device("cpu" if given.small else "cuda:0")
    print(f"{card_of(device)}, torch {torch.__version__}", flush=True)
    print(f"{given.model}, {given.setting}: {counted(device, given.model, given.setting)}")


if __name__ == "__main__":
    main()
