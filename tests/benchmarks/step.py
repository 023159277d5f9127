"""A training step in different settings: `python tests/benchmarks/step.py [model] [--size 81x480x832] [--setting "nf4 compiled full"]`.

A row each: seconds a step, peak memory, model-FLOPs utilisation and the ratio to the plain step of diffusers, peft and gradient
checkpointing (`training.plain`), measured in the same run. Utilisation is the multiplications and additions that the step must do,
without those of recomputation, per second, over what the card does in large bf16 products for two seconds. `--setting auto` and
`--setting "auto fp8"` ask the planner, for `--cap` GiB. `--small` runs models of two layers on a CPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.benchmarks.full_size import FULL, as_json, opened, size_of  # noqa: E402
from tests.benchmarks.settings import AUTO, PLAIN, USUAL, WEIGHTS, choices_of, words_of  # noqa: E402
from tests.benchmarks.training import RANK, STEPS, Measured, Steps, Work, card_of, measured, ours, plain, plain_inputs  # noqa: E402

if TYPE_CHECKING:
    import torch

SIDE, AT_ONCE, SUSTAINED = 8192, 50, 2.0  # of the bf16 products of the card's rate: rows, how many between waits, seconds in all


@dataclass(frozen=True)
class Row:
    """One setting's figures beside the plain step's."""

    work: Work
    asked: str  # the setting that was asked for
    setting: str  # what it comes to
    measured: Measured
    utilisation: float  # not a number where the step's operations could not be counted
    ratio: float  # plain's seconds over these; not a number without plain

    def __str__(self) -> str:
        return f"{self.work!s:34} {self.setting:42} {self.measured}  utilisation {self.utilisation:.2f}  ratio {self.ratio:.2f}"

    @property
    def figures(self) -> dict[str, Any]:
        """For the log."""
        shown = {"work": str(self.work), "setting": self.setting, "utilisation": self.utilisation, "ratio": self.ratio}
        return {**shown, **self.measured.figures}


def operations(work: Work) -> float:
    """Floating-point operations of a step: forward and backward passes of the transformer with its LoRA, nothing computed twice.

    Counted on tensors without memory, attention as the two products that it is forward and the five that fused kernels do backward, as
    torch's counter has them on a card. Not a number for models whose steps cannot be run without numbers.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    from tests.benchmarks.training import lora_on
    from trainer.models.loading import empty_model

    family, host = opened(work.model, work.small), torch.device("cpu")
    transformer: Any = empty_model(family.transformer_class, family.transformer_config).requires_grad_(False)
    lora_on(transformer, work, family)
    transformer.to("meta")
    kwargs = {name: _empty(value) for name, value in plain_inputs(work, family, host).items()}
    counter = FlopCounterMode(display=False)
    try:
        with counter, sdpa_kernel(SDPBackend.MATH):
            transformer(**kwargs, return_dict=False)[0].sum().backward()
    except (NotImplementedError, RuntimeError) as error:
        print(f"  operations of {work} cannot be counted: {str(error).splitlines()[0][:120]}", file=sys.stderr)
        return float("nan")
    products = counter.get_flop_counts()["Global"]
    return float(sum(products.values()) + products.get(torch.ops.aten.bmm, 0) / 6)  # here attention is six, and it alone is batched


def _empty(value: Any) -> Any:
    """The same shapes without memory."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.to("meta")
    return [_empty(part) for part in value] if isinstance(value, list | tuple) else value


def rate(device: torch.device) -> float:
    """Operations a second of large bf16 products of random numbers, one after the other; not a number on a CPU."""
    import torch

    if device.type != "cuda":
        return float("nan")
    left, right = (torch.randn(SIDE, SIDE, device=device, dtype=torch.bfloat16) for _ in range(2))
    out = torch.mm(left, right)
    torch.cuda.synchronize(device)
    done, start = 0, time.perf_counter()
    while (taken := time.perf_counter() - start) < SUSTAINED:
        for _ in range(AT_ONCE):
            torch.mm(left, right, out=out)
        torch.cuda.synchronize(device)
        done += AT_ONCE
    return 2 * SIDE**3 * done / taken


def rows(work: Work, settings: Sequence[str], device: torch.device, cap: float = 0.0, steps: int = STEPS) -> list[Row]:
    """The settings one after the other, each row printed as it is done; the first is the plain step if it is among them."""
    from tests.benchmarks.plan import planned

    needed, able = operations(work), rate(device)
    found: list[Row] = []
    for setting in sorted(settings, key=lambda name: name != PLAIN):
        words = setting
        try:
            if setting.split()[0] == AUTO:
                words = words_of(planned(work, device, cap, WEIGHTS.get(setting.removeprefix(AUTO).strip(), "auto")))
            figures = measured(partial(_built, work, words, device), device, steps=steps)
        except Exception as error:  # one setting must not cost the others' figures
            print(f"{work!s:34} {words:42} {type(error).__name__}: {str(error)[:600]}", flush=True)
            continue
        base = figures if setting == PLAIN else next((row.measured for row in found if row.asked == PLAIN), None)
        ratio = base.seconds / figures.seconds if base else float("nan")
        found.append(Row(work, setting, words, figures, needed / figures.seconds / able, ratio))
        print(found[-1], flush=True)
        print(as_json(found[-1].figures), file=sys.stderr, flush=True)
    return found


def _built(work: Work, words: str, device: torch.device) -> Steps:
    return plain(work, device) if words == PLAIN else ours(work, choices_of(words), device)


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="*", help=f"default: {next(iter(FULL))}; of {', '.join(FULL)}")
    parser.add_argument("--size", action="append", type=size_of, help="frames x height x width; default: the model's own")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rank", type=int, default=RANK)
    parser.add_argument("--setting", action="append", help=f"default: {USUAL}; also auto, and shares such as 'nf4 compiled full swap 0.5'")
    parser.add_argument("--cap", type=float, default=0.0, help="GiB that may be allocated on the card")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps timed")
    parser.add_argument("--small", action="store_true", help="on the CPU, two layers")
    given = parser.parse_args()
    device = torch.device("cpu" if given.small else "cuda:0")
    print(f"{card_of(device)}, torch {torch.__version__}, bf16 product {rate(device) / 1e12:.0f} TFLOP/s", flush=True)
    from tests.benchmarks.caps import capped

    for name in given.model or [next(iter(FULL))]:
        for size in given.size or [None]:
            with capped(device, given.cap):
                rows(Work(name, size, given.batch, given.rank, small=given.small), given.setting or USUAL, device, given.cap, given.steps)


if __name__ == "__main__":
    main()
