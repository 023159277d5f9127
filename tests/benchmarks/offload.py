"""What block swap costs: `python tests/benchmarks/offload.py [--share 0.75] [--setting "bf16 compiled selective"] [--small]`, on a card.

The same step with none of the blocks and with a share of them on the host, in seconds; then both again repeatably, at fewer frames,
where all losses must be equal to the bit. Beside them how fast the card copies from memory that is pinned as block swap pins it, and
from memory that is not.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.benchmarks.full_size import size_of  # noqa: E402
from tests.benchmarks.settings import BF16, choices_of, words_of  # noqa: E402
from tests.benchmarks.training import GIB, Measured, Way, Work, card_of, measured, ours, synchronize  # noqa: E402

if TYPE_CHECKING:
    import torch

    from trainer.memory.choices import Choices

MODEL, SHARE = "Wan 2.1 14B", 0.75  # 30 of its 40 blocks
LONG, SHORT = (81, 480, 832), (33, 480, 832)  # timed, compared
COPIES, REPEATABLE = 5, 4  # copies timed, repeatable steps compared
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # read once, before the first product: set first of all


@dataclass(frozen=True)
class Swap:
    """A share of the blocks swapped against none: figures of both, and the losses of the repeatable runs."""

    share: float
    without: Measured
    swapped: Measured
    losses_without: tuple[float, ...]
    losses_swapped: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Seconds with swap over those without."""
        return self.swapped.seconds / self.without.seconds

    @property
    def identical(self) -> bool:
        """Whether all losses are equal to the bit."""
        return self.losses_without == self.losses_swapped

    def __str__(self) -> str:
        same = "equal to the bit" if self.identical else f"DIFFER: {self.losses_without} and {self.losses_swapped}"
        lines = f"  none swapped: {self.without}\n  {self.share:.0%} swapped: {self.swapped}\n  ratio {self.ratio:.3f}"
        return f"{lines}; {len(self.losses_swapped)} repeatable losses {same}"


def swap(words: str, share: float, device: torch.device, small: bool = False, long: Any = LONG, short: Any = SHORT) -> Swap:
    """Both, timed and compared."""
    none = choices_of(words)
    some, work = replace(none, offload=share), Work(MODEL, long, small=small)
    without, swapped = (measured(lambda choices=choices: ours(work, choices, device), device) for choices in (none, some))
    repeatable = Work(MODEL, short, small=small)
    return Swap(share, without, swapped, *(losses(repeatable, choices, device) for choices in (none, some)))


def losses(work: Work, choices: Choices, device: torch.device) -> tuple[float, ...]:
    """The losses of some steps in deterministic mode, each after the update of the one before."""
    return measured(lambda: ours(work, choices, device, Way(deterministic=True)), device, warm_up=1, steps=REPEATABLE - 1).losses


def bandwidth(device: torch.device, size: int = GIB) -> dict[str, float]:
    """GB/s of copies to the device, from pinned and from other memory; a CPU copies within its memory."""
    import torch

    from trainer.memory.host_memory import HostBytes

    target, found = torch.empty(size, dtype=torch.uint8, device=device), {}
    for pin in (True, False):
        host = HostBytes(size, pin and device.type == "cuda")
        host.data.random_(0, 256)
        seconds = []
        for _ in range(COPIES):
            synchronize(device)
            start = time.perf_counter()
            target.copy_(host.data, non_blocking=True)
            synchronize(device)
            seconds.append(time.perf_counter() - start)
        refused = pin and device.type == "cuda" and not host.pinned
        found["pinned" if host.pinned else "pinning refused" if refused else "not pinned"] = size / min(seconds) / 1e9
        host.close()
    return found


def set_repeatable() -> None:
    """Makes deterministic mode possible later on in this process."""
    os.environ.setdefault(WORKSPACE, ":4096:8")


def main() -> None:
    set_repeatable()
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=SHARE)
    parser.add_argument("--setting", default=BF16, help="see settings.py")
    parser.add_argument("--size", type=size_of, default=LONG, help="timed")
    parser.add_argument("--compared", type=size_of, default=SHORT, help="size of the repeatable runs")
    parser.add_argument("--small", action="store_true", help="on the CPU, two layers")
    given = parser.parse_args()
    device = torch.device("cpu" if given.small else "cuda:0")
    speeds = bandwidth(device, GIB >> 4 if given.small else GIB)
    print(
        f"{card_of(device)}, torch {torch.__version__}; copies " + ", ".join(f"{kind} {speed:.1f} GB/s" for kind, speed in speeds.items())
    )
    print(f"{MODEL}, {words_of(choices_of(given.setting))}", flush=True)
    print(swap(given.setting, given.share, device, given.small, given.size, given.compared), flush=True)


if __name__ == "__main__":
    main()
