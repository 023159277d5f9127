"""Memory of the host that the card copies from: pinned where the system lets us, or a file of its own where memory is short."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import torch


class HostBytes:
    """`size` bytes of the host, [size] uint8 in `data`.

    They are registered with the card rather than allocated by torch's pinned allocator, which rounds up to powers of two.
    With `file` they lie in that new file, which the system pages in and out. It has no name any more where a file in use can
    lose it; on Windows it is removed when it is closed, or by `remove_left_over` if that never came to be.
    """

    def __init__(self, size: int, pin: bool, file: Path | None = None) -> None:
        self.pinned, self._file = False, file
        if file:
            self.data = torch.from_file(str(file), shared=True, size=size, dtype=torch.uint8)
            _remove(file)
        else:
            self.data = torch.empty(size, dtype=torch.uint8)
            self.pinned = pin and size > 0 and _register(self.data)

    def close(self) -> None:
        """Gives the memory back; nothing may use it any more."""
        if self.pinned:
            _runtime().cudaHostUnregister(self.data.data_ptr())
            self.pinned = False
        self.data = torch.empty(0, dtype=torch.uint8)
        if self._file:
            _remove(self._file)


def remove_left_over(folder: Path) -> None:
    """Removes the files of runs that were ended by force; those in use stay."""
    for file in folder.glob("*.bin"):
        _remove(file)


def _runtime() -> Any:
    return torch.cuda.cudart()


def _remove(file: Path) -> None:
    with suppress(OSError):
        file.unlink()


def _register(data: torch.Tensor) -> bool:
    """Whether the card's driver pinned the memory; it refuses beyond what the system allows."""
    if int(_runtime().cudaHostRegister(data.data_ptr(), data.numel(), 0)) == 0:
        return True
    with suppress(RuntimeError):  # the driver reports its refusal once more, to whoever asks next
        torch.zeros(1, device="cuda").add_(1)
    return False
