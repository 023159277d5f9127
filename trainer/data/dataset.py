"""The prepared dataset: items in stable order, their latents and texts in the cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..job import Bucket, WindowSettings
from .cache import TensorCache
from .clips import window_prefix
from .content import key_of
from .report import DatasetReport
from .texts import TextCache

if TYPE_CHECKING:
    from torch import Tensor

    from ..models.base import ModelFamily
    from .pictures import Picture


@dataclass(frozen=True)
class Item:
    """A clip as it is trained: one of `captions` at each visit, `size` is that of one example, `key` names its latents.

    Where captions tell what happens when, they are those of the clip as a whole, and `timed` has for each variant those of
    each window.
    """

    name: str
    path: Path
    captions: tuple[str, ...]  # as they are encoded, at least one
    size: Bucket
    windows: int
    repeats: int
    key: str
    weight: float = 1.0  # of its loss; only ratios matter
    variants: tuple[str, ...] = ()  # keys of further random variants; at each visit one of all is seen
    pieces: bool = False  # each window is an example of its own, and counts as much as a clip
    sections: int = 1  # windows that are cut from one encoding, one after the other
    timed: tuple[tuple[tuple[str, ...], ...], ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The key of each variant."""
        return self.key, *self.variants

    def variant(self, number: int) -> Item:
        """The clip with one of its variants alone."""
        return replace(self, key=self.keys[number], variants=(), timed=self.timed[number : number + 1])

    def captions_of(self, window: int) -> tuple[str, ...]:
        """What a window of the first variant is trained with, one at each visit."""
        return self.timed[0][window] if self.timed else self.captions

    @property
    def texts(self) -> tuple[str, ...]:
        """All that it is trained with, without doubles."""
        if not self.timed:
            return self.captions
        return tuple(dict.fromkeys(text for windows in self.timed for texts in windows for text in texts))


@dataclass(frozen=True)
class Dataset:
    """Items whose latents and captions are all cached; reading them never needs an encoder."""

    items: tuple[Item, ...]
    windows: WindowSettings | None
    sample_size: Bucket  # of samples drawn without a size of their own
    report: DatasetReport
    cache: TensorCache
    texts: TextCache
    family: ModelFamily
    frames: Mapping[str, Sequence[str]] = field(default_factory=dict)  # hashes of the examples' first frames, where texts see them

    def latents(self, item: Item, window: int = 0) -> dict[str, Tensor]:
        """One example's encoding, "latents" [C, T, h, w] and what else the family encodes; raises UserError if its file is damaged."""
        encoded, section = divmod(window, item.sections)
        return self.family.section(self.cache.read("clips", item.key, window_prefix(encoded)), section)

    def picture(self, item: Item, window: int = 0) -> str:
        """The hash of the first frame that an example's text is encoded with; empty where texts see no picture."""
        return self.frames[item.key][window // item.sections] if self.frames else ""

    def text(self, caption: str, picture: str = "") -> dict[str, Tensor]:
        """Embeddings of one of an item's captions or the empty one with its picture, or of a text that was added."""
        return self.texts.read(caption, picture)

    def add_text(self, text: str, picture: Picture | None = None) -> None:
        """Caches one more text, such as a sample prompt."""
        self.texts.add([(text, picture)])

    @property
    def fingerprint(self) -> str:
        """Hash over what is trained on, in order: contents, sizes, captions, repeats, weights and the encoders."""
        return key_of(items=[self._trained(item) for item in self.items])

    def _trained(self, item: Item) -> list[object]:
        """An item in the fingerprint; its texts by their keys, in which the encoder is."""
        told: list[object] = [item.key, list(map(self.texts.key, item.captions)), item.repeats, item.weight, *item.variants]
        if item.timed:
            told.append([[list(map(self.texts.key, texts)) for texts in windows] for windows in item.timed])
        return told


class TrainingData(Protocol):
    """What a run needs of a dataset, whatever its encodings lie in."""

    @property
    def items(self) -> Sequence[Item]:
        """Clips in stable order, at least one."""
        ...

    @property
    def windows(self) -> WindowSettings | None:
        """How windows group."""
        ...

    @property
    def sample_size(self) -> Bucket:
        """Size of samples drawn without one of their own."""
        ...

    @property
    def report(self) -> DatasetReport:
        """What was kept and left out."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hash over what is trained on."""
        ...

    def latents(self, item: Item, window: int = 0) -> dict[str, Tensor]:
        """One example's encoding, {"latents": [C, T, h, w]}, not normalised."""
        ...

    def picture(self, item: Item, window: int = 0) -> str:
        """The hash of the first frame that an example's text is encoded with; empty where texts see no picture."""
        ...

    def text(self, caption: str, picture: str = "") -> dict[str, Tensor]:
        """Embeddings of an item's caption or the empty one with its picture, or of a text that was added."""
        ...

    def add_text(self, text: str, picture: Picture | None = None) -> None:
        """Makes the embeddings of one more text available, for models whose texts see a picture with that."""


def commonest_size(items: Sequence[Item]) -> Bucket:
    """The example size most items have; the first of equals."""
    return Counter(item.size for item in items).most_common(1)[0][0]
