"""The planner's word against what is measured: `python tests/benchmarks/plan.py [number ...] [--seconds 440] [--out plan.json] [--small]`.

Each setting of SETTINGS is predicted from shapes alone and then run: peak memory that the allocator hands out, and seconds a step.
Settings that the time does not allow any more are left out and named.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.benchmarks.full_size import opened, random_data  # noqa: E402
from tests.benchmarks.settings import choices_of, words_of  # noqa: E402
from tests.benchmarks.training import GIB, Measured, Work, card_of, measured, ours  # noqa: E402

if TYPE_CHECKING:
    import torch

    from trainer.memory.choices import Choices
    from trainer.memory.prediction import Predictor

    Weights = Any  # a value of memory.weights

WAN = "Wan 2.1 14B"
SETTINGS = {  # those that compile first in an order that mixes models; each is a few seconds of steps
    1: (Work(WAN, (33, 480, 832)), "fp8 products compiled selective"),
    2: (Work(WAN, (33, 480, 832)), "bf16 eager full"),
    3: (Work(WAN, (17, 512, 512), batch=2), "fp8 eager full swap 0.75"),
    4: (Work(WAN, (9, 384, 384)), "nf4 eager full"),
    5: (Work(WAN, (17, 512, 512)), "int8 eager full swap 0.5"),
    6: (Work(WAN, (33, 480, 832)), "bf16 eager offloaded"),
    7: (Work("Wan 2.1 1.3B", (81, 480, 832)), "bf16 compiled selective"),
    8: (Work("Wan 2.1 1.3B", (33, 480, 832)), "bf16 eager selective"),
    9: (Work("LTX-Video 2B"), "bf16 eager full"),
    10: (Work("LTX-Video 2B"), "bf16 compiled full"),
    11: (Work("CogVideoX-5B"), "bf16 eager full"),
    12: (Work("HunyuanVideo", (33, 480, 832)), "fp8 eager full"),
    13: (Work("HunyuanVideo", (33, 480, 832)), "bf16 compiled selective"),
    14: (Work("FramePack"), "bf16 eager full"),
}
SECONDS = 440.0
STEPS = 1000  # that the planner takes a run to have


@dataclass(frozen=True)
class Predicted:
    """What the planner says: peak GiB of the allocator, seconds of a step and of compiling."""

    peak_gib: float
    seconds: float
    compile_seconds: float


@dataclass(frozen=True)
class Beside:
    """A setting as predicted and as measured."""

    number: int
    predicted: Predicted
    measured: Measured

    @property
    def peak_error(self) -> float:
        """Share by which the prediction is off, without sign."""
        return abs(self.predicted.peak_gib / self.measured.allocated_gib - 1)

    @property
    def time_error(self) -> float:
        """The same of the seconds."""
        return abs(self.predicted.seconds / self.measured.seconds - 1)

    def __str__(self) -> str:
        work, words = SETTINGS[self.number]
        own, said = self.measured, self.predicted
        peak = f"peak {said.peak_gib:6.2f} of {own.allocated_gib:6.2f} GiB ({self.peak_error:.1%} off)"
        step = f"step {said.seconds:6.2f} of {own.seconds:6.2f} s ({self.time_error:.1%} off)"
        return f"{self.number:2} {work!s:34} {words:34} {peak}  {step}  compile {said.compile_seconds:.0f} of {own.first:.0f} s"

    @property
    def figures(self) -> dict[str, Any]:
        """For the log."""
        said = {"peak_gib": self.predicted.peak_gib, "seconds": self.predicted.seconds, "compile_seconds": self.predicted.compile_seconds}
        return {"setting": self.number, "predicted": said, "measured": self.measured.figures}


def predicted(work: Work, choices: Choices, device: torch.device) -> Predicted:
    """The planner's prediction for choices."""
    said = predictor_of(work, device).predict(choices)
    return Predicted(said.peak / GIB, said.seconds, said.compile_seconds)


def planned(work: Work, device: torch.device, cap: float = 0.0, weights: Weights = "auto", compiler: bool = True) -> Choices:
    """The planner's own choices; of a card it may take `cap` GiB, 0: what is free. Without `compiler` none for a machine that lacks one."""
    import psutil

    from trainer.job import ComputeSettings, MemorySettings
    from trainer.memory.card import CONTEXT, GB, free_memory
    from trainer.memory.choosing import HOST_SHARE, Limits, chosen, triton_installed

    predictor = replace(predictor_of(work, device), host=HOST_SHARE * psutil.virtual_memory().available)
    free = free_memory(device) if device.type == "cuda" else predictor.card.memory
    card = cap * GIB + CONTEXT * GB if cap else free * GB
    compute = ComputeSettings(compile="auto" if compiler else "off", fp8_products="auto" if compiler else "off")
    found = chosen(predictor, MemorySettings(weights=weights), compute, Limits(card, STEPS, triton_installed()))
    assert found is not None, f"the planner says that {work} does not fit"
    return found.choices


def predictor_of(work: Work, device: torch.device) -> Predictor:
    """The planner's predictor for a piece of work; on a CPU the card is an H100 of its table."""
    import torch

    from trainer.job import AdapterSettings
    from trainer.memory.card import CARDS, card_at
    from trainer.memory.prediction import Micro, Predictor
    from trainer.memory.rehearsal import Shapes

    family = opened(work.model, work.small)
    given = random_data(work.full, family, [work.shape])
    shapes = Shapes({name: tuple(t.shape) for name, t in given.latents(given.items[0]).items()}, dict(work.full.text))
    # layers that no preset names are about those of attention
    adapter = AdapterSettings(rank=work.rank, targets="attention" if work.layers else "all")
    card = card_at(device) if device.type == "cuda" else CARDS["H100"]
    micros = [Micro(shapes, work.batch, 1.0, str(work))]
    return Predictor(family, adapter, micros, card, torch.bfloat16, experts=len(family.spec.experts))


def table(device: torch.device, numbers: Sequence[int] = (), seconds: float = SECONDS) -> list[Beside]:
    """The settings, each printed as it is done, until the time is over."""
    start, found = time.monotonic(), list[Beside]()
    for number in numbers or SETTINGS:
        if time.monotonic() - start > seconds:
            print(f"  out of time before setting {number}", flush=True)
            break
        work, words = SETTINGS[number]
        work, choices = replace(work, small=device.type == "cpu"), choices_of(words)
        try:
            said = predicted(work, choices, device)
            own = measured(lambda work=work, choices=choices: ours(work, choices, device), device)
        except Exception as error:  # one setting must not cost the others' figures
            print(f"{number:2} {work!s:34} {words_of(choices):34} {type(error).__name__}: {str(error)[:400]}", flush=True)
            continue
        found.append(Beside(number, said, own))
        print(found[-1], flush=True)
    return found


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", type=int, help=f"settings, of 1 to {max(SETTINGS)}; default: all")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="no setting is begun later than this")
    parser.add_argument("--out", type=Path, help="writes all figures there")
    parser.add_argument("--small", action="store_true", help="on the CPU, two layers; it has no peak to compare")
    given = parser.parse_args()
    device = torch.device("cpu" if given.small else "cuda:0")
    print(f"{card_of(device)}, torch {torch.__version__}", flush=True)
    found = table(device, given.numbers, given.seconds)
    if given.out:
        given.out.write_text(json.dumps([beside.figures for beside in found], indent=1), encoding="utf-8")
    if found and not math.isnan(found[0].peak_error):
        print(f"off at most: peak {max(b.peak_error for b in found):.1%}, step {max(b.time_error for b in found):.1%}")


if __name__ == "__main__":
    main()
