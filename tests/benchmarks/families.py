"""A training step of each family at full size: `python tests/benchmarks/families.py [name ...]`, on a card, with random weights.

Ours is a run's own step at the plainest choices, gradient checkpointing alone; plain is the same diffusers model with peft's
adapter, gradient checkpointing, autocast and fused AdamW in a loop of a few lines. Both in one process, one after the other.
What compilation, quantised weights and offloading gain is `step.py`'s.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.benchmarks.full_size import FULL, as_json  # noqa: E402
from tests.benchmarks.training import RANK, Measured, Steps, Work, measured, ours, plain  # noqa: E402


def row(name: str, device: str = "cuda", small: bool = False) -> dict[str, Any]:
    """One family's figures."""
    import torch

    from tests.benchmarks.full_size import opened
    from trainer.memory.choices import Choices

    work, place, choices = Work(name, small=small), torch.device(device), Choices(checkpointing="full")
    weights = sum(parameter.numel() for parameter in opened(name, small).skeleton.parameters()) / 1e9
    kinds: dict[str, Callable[[], Steps]] = {"plain": lambda: plain(work, place), "ours": lambda: ours(work, choices, place)}
    found = {kind: measured(make, place) for kind, make in kinds.items()}
    return {"work": str(work), "billions": weights, **found}


def told(found: dict[str, Any]) -> str:
    """A line of the table."""
    plain, own = found["plain"], found["ours"]
    return (
        f"{found['work']:30} {found['billions']:5.2f} G  plain {plain.seconds:6.2f} s {plain.allocated_gib:6.1f}   "
        f"ours {own.seconds:6.2f} s {own.allocated_gib:6.1f}   ratio {plain.seconds / own.seconds:.2f}"
    )


def main(names: list[str]) -> None:
    import torch

    print(f"{torch.cuda.get_device_name()}, LoRA of rank {RANK} on all layers, batch 1, bf16, gradient checkpointing; s/step and peak GiB")
    for name in names or FULL:
        try:
            found = row(name)
        except Exception as error:  # one family must not cost the others' figures
            print(f"{name:14} {type(error).__name__}: {str(error)[:600]}", flush=True)
            continue
        print(told(found), flush=True)
        shown = {key: value.figures if isinstance(value, Measured) else value for key, value in found.items()}
        print(as_json(shown), file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
