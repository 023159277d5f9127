"""How long a card takes for rehearsed work."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from .card import Card
    from .ledger import Operation, Stretch
    from .rehearsal import Rehearsal

# Shares of what the card reaches at large products and copies, the same for all models, from the steps in tests/memory/measured.py.
PRODUCTS = 0.82
ATTENTION = {"attention": 0.71, "narrow attention": 0.42, "masked attention": 0.45}
MOVING = 0.79
TILE = 128 * 256  # numbers of a product that a processor computes at a time, at full speed
HALF_TILE = 1.1  # how much longer each number takes where it computes half as many at a time
LAUNCH = 30e-6  # seconds that the host takes to start an operation outside of compiled code, autograd and PEFT included
POLICY_LAUNCH = 70e-6  # the same under a checkpoint's policy, which Python asks about every operation
WAIT = 300e-6  # seconds of each time that the host waits for a value: finding what a mask selects, the copy back, the queue run dry
COMPILED_LAUNCH = 11e-6  # for each operation that was compiled, most of which are fused with others
FP8_LAUNCH = 40e-6  # more for each product in fp8, beside the operations that round its numbers and lay them out
# GB/s of a file that is mapped, from an NVMe disk: little more than half of what data sheets of PCIe 3.0 disks promise (3.5), as pages come
# in one by one. A judgement: no disk was measured, and one of SATA reaches 0.5.
DISK = 2.0
COMPILING = 0.06  # seconds for each operation of one block of each kind
COMPILER_START = 15.0


def copy_seconds(weights: float, activations: float, card: Card, on_disk: bool) -> float:
    """Seconds of a step's copies of so many bytes from and to the host, of which the weights may lie on a disk."""
    return weights / ((min(DISK, card.pcie) if on_disk else card.pcie) * 1e9) + activations / (card.pcie * 1e9)


def told(seconds: float) -> str:
    """Seconds of a step with two digits, or whole."""
    return f"{seconds:.2g}" if seconds < 99.5 else f"{seconds:.0f}"


def update_seconds(adapter_weights: int, card: Card) -> float:
    """Seconds of clipping and AdamW, which read and write weights, gradients and two states in float32."""
    return 10 * 4 * adapter_weights / (card.bandwidth * 1e9)


def gradient_seconds(rehearsal: Rehearsal, card: Card, dtype: torch.dtype, compiled: bool) -> float:
    """Seconds of one micro-batch, computed in `dtype`: whichever is slower, card or host."""
    total = 0.0
    for stretch, count, way in rehearsal.work():
        fused, asked = compiled and way is not None, way in ("light", "selective")
        launch = COMPILED_LAUNCH if fused else POLICY_LAUNCH if asked else LAUNCH
        total += count * _stretch_seconds(stretch, card, dtype, launch, fused)
    return total


def _stretch_seconds(stretch: Stretch, card: Card, dtype: torch.dtype, launch: float, fused: bool) -> float:
    operations = stretch.operations.items()
    launches = sum(n * (launch + (FP8_LAUNCH if operation.kind == "fp8 product" else 0)) for operation, n in operations)
    kernels = [
        (operation_seconds(operation, card, dtype), n) for operation, n in operations if not (fused and operation.kind == "pointwise")
    ]
    moved = stretch.fused / (card.bandwidth * 1e9 * MOVING) if fused else 0.0
    if stretch.waits:  # the host cannot run ahead, so that neither makes up for where the other is slow
        return sum(n * max(seconds, launch) for seconds, n in kernels) + moved + stretch.waits * WAIT
    return max(sum(n * seconds for seconds, n in kernels) + moved, launches)


def operation_seconds(operation: Operation, card: Card, dtype: torch.dtype) -> float:
    """Seconds of one kernel: arithmetic or traffic, whichever takes longer; of attention arithmetic, and traffic of a mask on top."""
    moving = operation.moved / (card.bandwidth * 1e9 * MOVING)
    if operation.kind == "pointwise":
        return moving
    if operation.kind in ATTENTION:
        rows = moving if operation.kind == "masked attention" else 0.0
        return operation.flops / (card.products(dtype) * 1e12 * ATTENTION[operation.kind]) + rows
    speed = card.fp8 if operation.kind == "fp8 product" and card.fp8 else card.products(dtype)
    return max(operation.flops * _idling(operation.numbers, card) / (speed * 1e12 * PRODUCTS), moving)


def _idling(numbers: int, card: Card) -> float:
    """How many times longer a product of so many numbers takes because processors idle in its last round of tiles."""
    rounds = numbers / (TILE * card.processors)
    if rounds <= 1:  # such a product is cut up along its sums
        return 1.0
    return min(math.ceil(rounds) / rounds, HALF_TILE * math.ceil(2 * rounds) / (2 * rounds))


def compile_seconds(rehearsal: Rehearsal, shapes: int) -> float:
    """Seconds of compiling a block of each kind; a second shape of clips makes it once more, with sizes left open."""
    operations = sum(sum(part.forward.operations.values()) + sum(part.backward.operations.values()) for part in rehearsal.parts)
    return COMPILER_START + COMPILING * operations * (2 if shapes > 1 else 1)
