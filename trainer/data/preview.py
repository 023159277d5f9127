"""preview_dataset: the frames and captions that a model will be trained on, and the report, without loading any part of the model."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import fail
from ..events import EventLog, Phase
from ..job import Bucket, CaptionSettings, DatasetSettings, WindowSettings
from ..preview_settings import PreviewSettings
from .cache import TensorCache
from .captions import training_texts
from .clips import Entry, examples, pixels_of, take_known_looks
from .dataset import Item
from .likeness import thumbnails
from .planning import plan_dataset
from .prepare import trained_item
from .report import CaptionStatistics, ClipReport, DatasetReport
from .sampler import Sampler
from .sources.record import ClipRecord, UnusableClip

if TYPE_CHECKING:
    from ..models.base import ModelFamily


@dataclass(frozen=True)
class ShownClip:
    """A clip as the model will see it: `frames` [F, H, W, 3] uint8 of its first example, `places` where in it they stand."""

    record: ClipRecord
    texts: tuple[str, ...]  # every text it is trained with
    frames: np.ndarray
    places: tuple[int, ...]
    fps: float
    bucket: Bucket
    report: ClipReport


@dataclass(frozen=True)
class Preview:
    """The shown clips, `first` the number of the first of them among all that can be trained on, and the report of all.

    `items` are all clips as a sampler takes them, without names of encodings.
    """

    clips: list[ShownClip]
    first: int
    report: DatasetReport
    items: list[Item]
    windows: WindowSettings | None


def preview_dataset(
    dataset: DatasetSettings,
    captions: CaptionSettings,
    family: ModelFamily,
    cache: Path,
    log: EventLog,
    shown: PreviewSettings,
    *,
    seed: int = 0,
    tiled: bool = False,
    may_download: bool = False,
) -> Preview:
    """Plans all clips as training does and decodes the few that are shown, each no further than its first example.

    A clip that turns out unusable is reported and not shown. Look-alikes are told among the shown clips and those that were
    encoded before, by whole frames or `tiled`. Raises UserError if there is no clip at all, Interrupted on cancel.
    """
    if dataset.sources and not dataset.clip_sources:
        raise fail("dataset.sources", "Parquet files hold encoded clips, which have no frames to look at.", "Link a dataset of videos.")
    store = TensorCache(cache)
    plan = plan_dataset(dataset, captions, family.spec, store, log, seed=seed, may_download=may_download)
    store.save()
    plan.require_clips()
    plan.teller.tell_skipped()
    if len(dataset.clip_sources) < len(dataset.sources):
        plan.teller.notice("Parquet files hold encoded clips, which are trained on but neither shown nor counted here.")
    first = min(shown.first, max(len(plan.entries), 1)) - 1
    wanted = plan.entries[first : first + shown.clips]
    log.emit(Phase("prepare", "Decoding clips"))
    done, clips = log.progress(len(wanted), "clips decoded"), list[ShownClip]()
    for number, entry in enumerate(wanted, 1):
        log.check()
        try:
            clips.append(_shown(entry, captions, shown.frames, seed, log))
        except UnusableClip as error:
            plan.teller.drop(entry.report, error)
        done(number)
    report = plan.teller.report
    for entry in plan.usable:
        variants = [pixels_of(entry.plan, take) for take in entry.plan.takes]
        entry.report.variants = sum(variant not in variants[:place] for place, variant in enumerate(variants))
    items = [trained_item(entry, captions, seed) for entry in plan.usable]
    report.texts = CaptionStatistics.of([item.texts for item in items])
    take_known_looks(plan.usable, family, store, tiled, log.check)
    plan.compare()
    plan.teller.summary()
    preview = Preview(clips, first + 1, report, items, plan.shape.windows)
    if items:
        report.examples_per_epoch = Sampler(preview, 1, 1, seed).examples_per_epoch
    return preview


def _shown(entry: Entry, captions: CaptionSettings, count: int, seed: int, log: EventLog) -> ShownClip:
    """Decodes the clip's first example of its first variant; raises UnusableClip if it cannot be."""
    plan = entry.plan
    with entry.content.steady(plan.record.path, log.check), closing(examples(plan, plan.takes[0], log.check)) as made:
        _, frames = next(made)
    entry.look = thumbnails(frames)
    places = tuple(sorted({round(place) for place in np.linspace(0, len(frames) - 1, count)})) if count > 1 else (len(frames) // 2,)
    texts = training_texts(plan.record, captions, seed)
    return ShownClip(plan.record, texts, frames[list(places)], places, plan.line.fps, plan.example, entry.report)
