"""Card: how fast and how large a graphics card is, as measured where one is there, else by a table of well-known ones."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import fail

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

SUSTAINED = 0.8  # of a data sheet's matrix products per second that large products reach: an H200 790 of 989 TFLOP/s
COPIED = 0.9  # of a data sheet's bandwidth that copies inside the card reach
CONTEXT = 0.6  # GB that a process takes outside of PyTorch's allocator
GB = 2**30  # bytes: as cards are sold by, and as memory.fit_into and the cap on PyTorch's allocator count
BYTES_A_SECOND = 10**9  # in a GB/s, as data sheets count


@dataclass(frozen=True)
class Card:
    """A card's memory in GB of 2^30 bytes, dense products in TFLOP/s, bandwidths in GB/s, multiprocessors and CUDA compute capability.

    Products in float32 are those without TF32, as PyTorch computes them.
    """

    name: str
    memory: float
    fp32: float
    bf16: float
    fp8: float  # 0 where the card has none
    bandwidth: float
    pcie: float  # from pinned host memory
    processors: int
    capability: tuple[int, int]

    def products(self, dtype: torch.dtype) -> float:
        """TFLOP/s in a precision that training may have."""
        import torch

        return self.fp32 if dtype == torch.float32 else self.bf16

    @property
    def has_bf16(self) -> bool:
        """Whether it computes bf16 itself; older ones imitate it."""
        return self.capability >= (8, 0)

    @property
    def fp8_products(self) -> bool:
        """Whether it multiplies in fp8."""
        return self.capability >= (8, 9) and self.fp8 > 0

    @property
    def compiles(self) -> bool:
        """Whether Triton makes kernels for it."""
        return self.capability >= (7, 0)


def _row(
    name: str, memory: float, fp32: float, bf16: float, fp8: float, bandwidth: float, pcie: float, processors: int,
    capability: tuple[int, int],
) -> Card:  # fmt: skip
    return Card(name, memory, fp32 * SUSTAINED, bf16 * SUSTAINED, fp8 * SUSTAINED, bandwidth * COPIED, pcie, processors, capability)


# NVIDIA's data sheets and architecture papers: dense products of float32, and of bf16 and fp8 with sums in it; copies from pinned memory
# as they are reached.
CARDS = {
    card.name: card
    for card in (
        _row("RTX 3060", 12, 12.7, 25.5, 0, 360, 12, 28, (8, 6)),
        _row("RTX 3060 Ti", 8, 16.2, 32.4, 0, 448, 22, 38, (8, 6)),
        _row("RTX 3070", 8, 20.3, 40.6, 0, 448, 22, 46, (8, 6)),
        _row("RTX 3080", 10, 29.8, 59.5, 0, 760, 22, 68, (8, 6)),
        _row("RTX 3090", 24, 35.6, 71, 0, 936, 22, 82, (8, 6)),
        _row("RTX 4060", 8, 15.1, 30, 60, 272, 12, 24, (8, 9)),
        _row("RTX 4060 Ti", 16, 22.1, 44, 88, 288, 12, 34, (8, 9)),
        _row("RTX 4070", 12, 29.1, 58, 117, 504, 22, 46, (8, 9)),
        _row("RTX 4070 Ti", 12, 40.1, 80, 160, 504, 22, 60, (8, 9)),
        _row("RTX 4070 Ti SUPER", 16, 44.1, 88, 176, 672, 22, 66, (8, 9)),
        _row("RTX 4080", 16, 48.7, 97, 195, 717, 22, 76, (8, 9)),
        _row("RTX 4090", 24, 82.6, 165, 330, 1008, 22, 128, (8, 9)),
        _row("RTX 5070", 12, 30.9, 62, 123, 672, 45, 48, (12, 0)),
        _row("RTX 5070 Ti", 16, 43.9, 88, 176, 896, 45, 70, (12, 0)),
        _row("RTX 5080", 16, 56.3, 113, 225, 960, 45, 84, (12, 0)),
        _row("RTX 5090", 32, 104.8, 210, 419, 1792, 45, 170, (12, 0)),
        _row("RTX A6000", 48, 38.7, 155, 0, 768, 22, 84, (8, 6)),
        _row("RTX 6000 Ada", 48, 91.1, 182, 364, 960, 22, 142, (8, 9)),
        _row("RTX PRO 6000", 96, 125, 252, 503, 1792, 45, 188, (12, 0)),
        _row("L40S", 48, 91.6, 181, 362, 864, 22, 142, (8, 9)),
        _row("A100", 80, 19.5, 312, 0, 2039, 22, 108, (8, 0)),
        _row("H100", 80, 67, 989, 1979, 3350, 48, 132, (9, 0)),
        _row("H200", 141, 67, 989, 1979, 4800, 48, 132, (9, 0)),
    )
}
UNKNOWN = _row("unknown card", 8, 8, 25, 0, 300, 12, 28, (8, 6))


def card_named(name: str, where: str = "card") -> Card:
    """The card of the table that a name such as 4090, "NVIDIA H200" or "4060 Ti 8 GB" says, with the memory that it says.

    Raises UserError for one that the table lacks: a card whose name is longer by a word is another card.
    """
    memory = re.search(r"(\d+)\s*gb?\s*$", name, re.IGNORECASE)
    wanted = _plain(name[: memory.start()] if memory else name)
    for card in CARDS.values():
        if wanted and wanted in (_plain(card.name), _plain(card.name).removeprefix("rtx")):
            return replace(card, memory=float(memory[1])) if memory else card
    known = f"The table has {', '.join(CARDS)}. For others name a slower one of the same generation, with its own memory: '4070 16 GB'."
    raise fail(where, f"'{name}' is not in the table of cards.", known)


def _plain(name: str) -> str:
    return re.sub(r"nvidia|geforce|\(r\)|[\s-]", "", name.lower())


def _alike(name: str) -> Card:
    """The card of the table whose name a driver's name begins with, as far as there is one."""
    found = [card for card in CARDS.values() if _plain(name).startswith(_plain(card.name))]
    return max(found, key=lambda card: len(card.name), default=UNKNOWN)


def card_at(device: torch.device) -> Card:
    """The card of a device, its speeds measured in less than two seconds; what cannot be measured is that of the table."""
    import torch

    about = torch.cuda.get_device_properties(device)
    known = _alike(about.name)
    capability = torch.cuda.get_device_capability(device)
    card = replace(known, name=about.name, memory=about.total_memory / GB, processors=about.multi_processor_count, capability=capability)
    card = replace(card, fp32=_products(device, torch.float32), bandwidth=_bandwidth(device), pcie=_pcie(device))
    if not card.has_bf16:
        return card
    bf16 = _products(device, torch.bfloat16)
    return replace(card, bf16=bf16, fp8=card.fp8 and card.fp8 / known.bf16 * bf16)


def card_memory(device: torch.device) -> float | None:
    """GB of the card that a device is, at once and without measuring anything; None for a CPU."""
    import torch

    return torch.cuda.get_device_properties(device).total_memory / GB if device.type == "cuda" else None


def free_memory(device: torch.device) -> float:
    """GB of a card that no other program holds: what is free, and what this process's allocator holds without using it."""
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return (free + idle) / GB


def _seconds(call: Callable[[], object], repeats: int) -> float:
    import torch

    call()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    start.record()
    for _ in range(repeats):
        call()
    end.record()
    torch.cuda.synchronize()
    return min(start.elapsed_time(end) / 1000, time.perf_counter() - begun) / repeats


def _products(device: torch.device, dtype: torch.dtype) -> float:
    """TFLOP/s of a large product."""
    import torch

    size = 4096
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / _seconds(lambda: left @ right, 20) / 1e12


def _bandwidth(device: torch.device) -> float:
    """GB/s read and written by a copy inside the card."""
    import torch

    source = torch.empty(1 << 27, device=device, dtype=torch.uint8)
    target = torch.empty_like(source)
    return 2 * source.numel() / _seconds(lambda: target.copy_(source), 20) / BYTES_A_SECOND


def _pcie(device: torch.device) -> float:
    """GB/s from pinned host memory, from ordinary memory where it cannot be pinned."""
    import torch

    source = torch.empty(1 << 26, dtype=torch.uint8)
    with suppress(RuntimeError):  # too little that may be locked
        source = source.pin_memory()
    target = torch.empty(source.numel(), device=device, dtype=torch.uint8)
    return source.numel() / _seconds(lambda: target.copy_(source, non_blocking=True), 4) / BYTES_A_SECOND
