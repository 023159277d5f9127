"""prepare_dataset: from sources and settings to a dataset whose encodings are all cached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ..events import EventLog
from ..job import Bucket, CaptionSettings, DatasetSettings
from .cache import TensorCache
from .captions import example_texts, whole_texts
from .clips import ClipCache, Entry
from .dataset import Dataset, Item, commonest_size
from .plan import Shaper
from .planning import plan_dataset
from .report import CaptionStatistics
from .sources.record import ChangedFile
from .texts import TextCache

if TYPE_CHECKING:
    from ..models.base import ModelFamily
    from .encoders import Encoders
    from .pictures import Picture


def prepare_dataset(
    dataset: DatasetSettings,
    captions: CaptionSettings,
    family: ModelFamily,
    store: TensorCache,
    encoders: Encoders,
    log: EventLog,
    *,
    seed: int = 0,
    may_download: bool = False,
) -> Dataset:
    """Scans, plans and encodes what is missing in `store`; `seed` is that of all random variants, of captions and of clips.

    Clips that cannot be used are skipped and reported. Raises UserError if none is left, Interrupted on cancel.
    """
    plan = plan_dataset(dataset, captions, family.spec, store, log, seed=seed, may_download=may_download)
    report = plan.teller.report
    clips = ClipCache(family, encoders, store, log, dataset.dataloader_threads) if plan.entries else None
    if clips:  # else an error names every clip
        plan.teller.tell_skipped()
        changed = clips.add(plan.entries, plan.teller.drop)
        for entry in clips.add(plan.renew(changed), plan.teller.drop):
            plan.teller.drop(entry.report, ChangedFile())
    plan.require_some()
    entries = plan.usable
    items = [trained_item(entry, captions, seed) for entry in entries]
    frames = [clips.pictures(entry) for entry in entries] if clips else []
    texts = TextCache(family, encoders, store, log)
    texts.add(_texts(items, frames))
    report.texts = CaptionStatistics.of([item.texts for item in items])
    if clips:
        for entry in entries:
            entry.look = clips.look(entry)
    plan.compare()
    plan.teller.summary()
    store.save()
    digests = {key: [picture.digest for picture in pictures] for found in frames for key, pictures in found.items()}
    return Dataset(tuple(items), plan.shape.windows, _sample_size(plan.shape, items), report, store, texts, family, digests)


def trained_item(entry: Entry, captions: CaptionSettings, seed: int) -> Item:
    """A planned clip as it is trained; its keys are empty where its encodings have no names yet."""
    record, plan, keys = entry.plan.record, entry.plan, entry.keys or ("",)
    texts, timed = whole_texts(record, captions, seed), example_texts(plan, entry.takes or plan.takes, captions, seed)
    return Item(
        record.name, record.path, texts, plan.example, len(plan.starts) * plan.sections, record.repeats, keys[0], record.weight, keys[1:],
        plan.pieces, plan.sections, timed,
    )  # fmt: skip


def _texts(items: Sequence[Item], frames: Sequence[Mapping[str, Sequence[Picture]]]) -> Iterator[tuple[str, Picture | None]]:
    """The texts of each item and the empty one, where texts see them with the first frame of each example that they are of."""
    for item, pictures in zip(items, frames, strict=True):
        if not pictures:
            yield from ((text, None) for text in ("", *item.texts))
        for number, key in enumerate(item.keys if pictures else ()):
            variant = item.variant(number)
            for example, picture in enumerate(pictures[key]):
                windows = range(example * item.sections, (example + 1) * item.sections)
                texts = dict.fromkeys(text for window in windows for text in variant.captions_of(window))
                yield from ((text, picture) for text in ("", *texts))


def _sample_size(shape: Shaper, items: list[Item]) -> Bucket:
    """The first bucket as it was rounded, or the size most clips have."""
    first = shape.sizes.first
    if first is None:
        return commonest_size(items)
    return first.model_copy(update={"frames": shape.spec.frame_rule.floor(first.frames)})
