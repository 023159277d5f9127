"""Every random draw of a run, by key, so that batching, resuming and world size cannot change what is drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def key_seed(*key: int | str) -> int:
    """A 63-bit seed from a key such as (seed, "noise", epoch, item); equal keys give equal seeds everywhere."""
    digest = hashlib.blake2b("/".join(map(str, key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator(*key: int | str) -> torch.Generator:
    """A CPU generator seeded by the key; draws are made on the CPU so that every device sees the same numbers."""
    import torch

    return torch.Generator("cpu").manual_seed(key_seed(*key))


def normal(shape: tuple[int, ...], *key: int | str) -> torch.Tensor:
    """Standard normal float32 tensor of `shape` for the key."""
    import torch

    return torch.randn(shape, generator=generator(*key))


def uniform(*key: int | str) -> float:
    """One number in [0, 1) for the key."""
    import torch

    return torch.rand((), generator=generator(*key)).item()


def uniforms(count: int, *key: int | str) -> list[float]:
    """`count` numbers in [0, 1) for the key."""
    import torch

    return torch.rand(count, generator=generator(*key)).tolist()


def choice(count: int, *key: int | str) -> int:
    """One of range(count), all alike, for the key."""
    return int(uniform(*key) * count)


def permutation(count: int, *key: int | str) -> list[int]:
    """A random order of range(count) for the key."""
    import torch

    return torch.randperm(count, generator=generator(*key)).tolist()


@contextmanager
def module_randomness(device: torch.device, *key: int | str) -> Iterator[None]:
    """Seeds torch's global generators of the CPU and of one device for module code that draws by itself, and restores them after."""
    import torch

    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.random.default_generator.manual_seed(key_seed(*key))
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(key_seed(*key))
        yield
