"""The cache of encoded clips and captions: safetensors files named by a hash of all that shaped them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError, fail
from ..files import not_written, remove_leftovers, write_bytes
from .cache_use import UseMarks
from .content import ContentIndex, signature

if TYPE_CHECKING:
    from torch import Tensor

CACHE_FORMAT = 2  # raised whenever the files' layout or what is in a key changes


class TensorCache:
    """Named tensors by key under one folder, and the `index` of file contents kept there; damaged files count as absent.

    A run opens one for all its parts: of two, the last to save its index would undo what the other remembered.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.index, self.used = folder, ContentIndex(folder / "index.json"), UseMarks(folder)

    def path(self, kind: str, key: str) -> Path:
        """Where an entry lies."""
        return self.folder / kind / key[:2] / f"{key}.safetensors"

    def has(self, kind: str, key: str) -> bool:
        """Whether a whole entry is there; its checksum is computed again only if the file changed since it was last right."""
        path = self.path(kind, key)
        if not path.is_file():
            return False
        if not self.index.is_known(path, key):
            state = signature(path)
            if not _is_whole(path):
                return False
            self.index.remember(path, state, key)
        self.used.mark(path)
        return True

    def write(self, kind: str, key: str, tensors: dict[str, Tensor]) -> None:
        """Stores an entry with its checksum; raises UserError if the disk is full or the folder cannot be written."""
        from safetensors.torch import save

        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        try:
            remove_leftovers(self.path(kind, key))
            write_bytes(self.path(kind, key), save(tensors, metadata={"checksum": _checksum(tensors)}))
        except OSError as error:
            raise self.not_written(error) from error
        self.used.mark(self.path(kind, key))

    def not_written(self, error: OSError) -> UserError:
        """What to tell when something could not be kept in the cache."""
        return not_written(self.folder, error, "Free space there, or set another folder for outputs; what is cached so far is kept.")

    def save(self) -> None:
        """Keeps what is known of the files: their hashes, and which of them are used today."""
        self.index.save()
        self.used.save()

    def read(self, kind: str, key: str, prefix: str = "") -> dict[str, Tensor]:
        """The entry's tensors whose names begin with `prefix`, the prefix cut off; copied, so that the file is closed again.

        Raises UserError if the file was removed or damaged since it was looked for.
        """
        from safetensors import SafetensorError, safe_open

        path = self.path(kind, key)
        try:
            with safe_open(path, framework="pt") as file:
                names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118 - not a dict
                return {name[len(prefix) :]: file.get_tensor(name).clone() for name in names}
        except (SafetensorError, OSError) as error:
            raise fail(str(path), f"the cached encoding cannot be read: {error}.", "Run again; it is made anew.") from error


def _is_whole(path: Path) -> bool:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            return (file.metadata() or {}).get("checksum") == _checksum(tensors)
    except (SafetensorError, OSError, ValueError):
        return False


def _checksum(tensors: dict[str, Tensor]) -> str:
    import torch

    hasher = hashlib.blake2b(digest_size=20)
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        hasher.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        hasher.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return hasher.hexdigest()
