"""The prepared dataset: items in stable order, their latents and texts in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import fail
from ..job import Bucket
from .cache import TensorCache
from .content import key_of
from .report import DatasetReport

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Item:
    """A clip as it is trained: `caption` has its prefix, `size` is that of one example, `key` names its cache entry."""

    name: str
    path: Path
    caption: str
    size: Bucket
    windows: int
    repeats: int
    key: str


class Dataset:
    """Items whose latents and captions are all cached; reading them never needs an encoder."""

    def __init__(self, items: Sequence[Item], text_keys: dict[str, str], cache: TensorCache, report: DatasetReport) -> None:
        self.items, self.report = tuple(items), report
        self._text_keys, self._cache = text_keys, cache

    def latents(self, item: Item, window: int = 0) -> dict[str, Tensor]:
        """One example's encoding, {"latents": [C, T, h, w]}; raises UserError if its file was removed or damaged."""
        return self._read("clips", item.key, item.name, window_prefix(window))

    def text(self, caption: str) -> dict[str, Tensor]:
        """Embeddings of an item's caption, of the empty caption, or of a text named when preparing."""
        return self._read("texts", self._text_keys[caption], f"caption '{caption}'")

    @property
    def fingerprint(self) -> str:
        """Hash over what is trained on, in order: contents, sizes, captions, repeats and the encoders."""
        return key_of(items=[[item.key, self._text_keys[item.caption], item.repeats] for item in self.items])

    def _read(self, kind: str, key: str, name: str, prefix: str = "") -> dict[str, Tensor]:
        from safetensors import SafetensorError

        try:
            return self._cache.read(kind, key, prefix)
        except (OSError, SafetensorError) as error:
            path = str(self._cache.path(kind, key))
            raise fail(path, f"the cache of {name} cannot be read: {error}.", "Run again; it is made anew.") from error


def window_prefix(window: int) -> str:
    """How the tensors of a window are named inside a clip's file."""
    return f"{window:05d}."
