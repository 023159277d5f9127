"""How much of the card a run may take: beyond it torch raises an error that the run steps down from."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .card import CONTEXT, GB

if TYPE_CHECKING:
    import torch

ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # where the user, or ComfyUI, tells torch's allocator how to work
WINDOWS_RESERVE = 0.5  # GB that stay free of what is free: near the end the driver moves memory to the host without a word


def share(fit_into: float, free: float, total: float, windows: bool) -> float:
    """The share of a card that torch may allocate, 0 to 1, for `free` and `total` bytes.

    If given, it is `fit_into` GB less what the process takes outside of torch's allocator, so that the card loses as much as
    the plan's limit says; on Windows no more than what is free.
    """
    limits = [total]
    if fit_into:
        limits.append((fit_into - CONTEXT) * GB)
    if windows:
        limits.append(free - WINDOWS_RESERVE * GB)
    return max(min(limits) / total, 0.0)


@contextmanager
def limited(device: torch.device, fit_into: float) -> Iterator[None]:
    """Inside the block the process takes no more of the card than `fit_into` GB (0: what there is) and, on Windows, than is free.

    What it takes is `unfragmented`.
    """
    if device.type != "cuda":
        yield
        return
    import torch

    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device)
    torch.cuda.set_per_process_memory_fraction(share(fit_into, free, total, sys.platform == "win32"), device)
    try:
        with unfragmented(device):
            yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


@contextmanager
def unfragmented(device: torch.device) -> Iterator[None]:
    """Inside the block torch's own allocator leaves no gaps, where the system lets it and nobody has set it up otherwise.

    Its segments then grow page by page. As it is by default, gaps between tensors of many sizes cost a tenth of a small card.
    """
    if device.type != "cuda" or sys.platform == "win32" or any(os.environ.get(name) for name in ALLOCATOR):
        yield
        return
    import torch

    torch.cuda.empty_cache()
    torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
    try:
        yield
    finally:
        torch._C._accelerator_setAllocatorSettings("expandable_segments:False")
