"""Several datasets as one, such as clips and Parquet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..job import Bucket, WindowSettings
from .content import key_of
from .dataset import Item, TrainingData
from .report import CaptionStatistics, DatasetReport

if TYPE_CHECKING:
    from torch import Tensor

    from .pictures import Picture


@dataclass(frozen=True)
class JoinedDataset:
    """The items of all parts in their order; a text that two parts know has the embedding of the first."""

    parts: tuple[TrainingData, ...]
    items: tuple[Item, ...]
    windows: WindowSettings | None
    sample_size: Bucket
    report: DatasetReport
    owners: Mapping[str, TrainingData]  # by an item's key, which is a hash of what its latents are made of

    def latents(self, item: Item, window: int = 0) -> dict[str, Tensor]:
        """One example's encoding, from the part that the item is of."""
        return self.owners[item.key].latents(item, window)

    def picture(self, item: Item, window: int = 0) -> str:
        """The hash of the first frame that an example's text is encoded with, from the part that the item is of."""
        return self.owners[item.key].picture(item, window)

    def text(self, caption: str, picture: str = "") -> dict[str, Tensor]:
        """Embeddings from the first part that knows the text; raises KeyError if none does."""
        for part in self.parts:
            try:
                return part.text(caption, picture)
            except KeyError:
                continue
        raise KeyError(caption)

    def add_text(self, text: str, picture: Picture | None = None) -> None:
        """Has the first part encode a text that no part knows: an item's text must not become another one."""
        try:
            self.text(text, picture.digest if picture else "")
        except KeyError:
            self.parts[0].add_text(text, picture)

    @property
    def fingerprint(self) -> str:
        """Hash over those of the parts."""
        return key_of(parts=[part.fingerprint for part in self.parts])


def joined(parts: Sequence[TrainingData]) -> TrainingData:
    """The parts as one dataset, of which the first draws samples; a single one as it is."""
    if len(parts) == 1:
        return parts[0]
    items = tuple(item for part in parts for item in part.items)
    reports = [part.report for part in parts]
    seen = sum((Counter(report.seen) for report in reports), Counter[str]())
    report = replace(
        reports[0],
        clips=[clip for report in reports for clip in report.clips],
        seen=dict(seen),
        notices=[notice for report in reports for notice in report.notices],
        texts=CaptionStatistics.of([item.texts for item in items]),
    )
    windows = next((part.windows for part in parts if part.windows), None)
    owners = {key: part for part in parts for item in part.items for key in item.keys}
    return JoinedDataset(tuple(parts), items, windows, parts[0].sample_size, report, owners)
