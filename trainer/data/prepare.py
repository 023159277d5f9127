"""prepare_dataset: from sources and settings to a dataset whose encodings are all cached."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import Problem, UserError, fail
from ..events import EventLog, Phase
from ..job import Bucket, CaptionSettings, DatasetSettings
from .cache import TensorCache
from .captions import is_left_out, training_texts
from .clips import ClipCache, Entry
from .content import ContentIndex
from .dataset import Dataset, Item, commonest_size
from .plan import Shaper, shaper
from .probe import probe
from .report import DatasetReport
from .sources.folder import CLIP_EXTENSIONS
from .sources.record import ClipRecord, Scan, UnusableClip
from .sources.scan import scan
from .texts import TextCache

if TYPE_CHECKING:
    from ..models.base import ModelFamily
    from .encoders import Encoders

_NOTICES = 20  # clips named one by one in notices; the report names all


@dataclass
class _Teller:
    """Tells the user what happens to the clips, and keeps it for the report."""

    log: EventLog
    report: DatasetReport
    skips: int = 0

    def notice(self, text: str, where: str = "") -> None:
        """A notice that the report keeps too."""
        self.report.notices.append(f"{where}: {text}" if where else text)
        self.log.notice(text, where)

    def leave_out(self, record: ClipRecord, reason: str) -> None:
        """A clip is skipped before it is planned."""
        self.report.skip(record, reason)
        self.skip(record.path, reason)

    def skip(self, path: Path, reason: str) -> None:
        """A clip is left out; after many, only the report says so."""
        self.skips += 1
        if self.skips <= _NOTICES:
            self.log.notice(f"skipped: {reason}", str(path))

    def summary(self) -> None:
        """Notices about the dataset as a whole."""
        kept = self.report.kept
        if self.skips > _NOTICES:
            self.log.notice(f"{self.skips - _NOTICES} more clips are skipped; the dataset report says why.")
        if uncaptioned := sum(clip.caption == "none" for clip in kept):
            self.notice(f"{uncaptioned} of {len(kept)} clips have no caption and are trained with the trigger alone or none.")
        if interlaced := sum(clip.interlaced for clip in kept):
            self.notice(f"{interlaced} of {len(kept)} clips are interlaced and are deinterlaced (bwdif), at one frame per two fields.")
        if cut := sum(clip.used_frames * 2 < clip.retimed_frames for clip in kept):
            self.notice(f"{cut} of {len(kept)} clips are used for less than half of their length: their bucket is that much shorter.")
        if enlarged := sum(clip.enlarged for clip in kept):
            self.notice(f"{enlarged} of {len(kept)} clips are smaller than their bucket and are enlarged.")


def prepare_dataset(
    dataset: DatasetSettings,
    captions: CaptionSettings,
    family: ModelFamily,
    cache: Path,
    encoders: Encoders,
    log: EventLog,
    *,
    seed: int = 0,
    may_download: bool = False,
) -> Dataset:
    """Scans, plans and encodes what is missing, one clip at a time; `seed` is that of the captions' variants.

    Clips that cannot be used are skipped and reported. Raises UserError if none is left, Interrupted on cancel.
    """
    store = TensorCache(cache, ContentIndex(cache / "index.json"))
    shape, roundings = shaper(dataset, family.spec)
    teller = _Teller(log, DatasetReport(shape.fps))
    for text in roundings:
        teller.notice(text)
    log.emit(Phase("prepare", "Reading clips"))
    found = scan(dataset.sources, cache, may_download, log.check)
    teller.report.seen = dict(found.seen)
    for problem in found.notices:
        teller.notice(f"{problem.found} {problem.cure}".strip(), problem.where)
    for record, reason in found.skipped:
        teller.leave_out(record, reason)
    entries = _planned(found, captions, shape, store.index, teller)
    if entries:
        ClipCache(family, encoders, store, log).add(entries, lambda plan, reason: teller.skip(plan.record.path, reason))
    _require_some(teller.report, dataset, found)
    items = [_item(entry, captions, seed) for entry in entries if not entry.report.skipped]
    texts = TextCache(family, encoders, store, log)
    texts.add(["", *(caption for item in items for caption in item.captions)])
    teller.summary()
    store.index.save()
    return Dataset(tuple(items), shape.windows, _sample_size(shape, items), teller.report, store, texts)


def _planned(scan: Scan, captions: CaptionSettings, shape: Shaper, index: ContentIndex, teller: _Teller) -> list[Entry]:
    """Every usable clip's plan and content hash."""
    entries = []
    done = teller.log.progress(len(scan.clips), "clips read")
    for number, record in enumerate(scan.clips, 1):
        try:
            if is_left_out(record, captions):
                raise UnusableClip("has no caption, and such clips are to be skipped")
            plan = shape.plan(record, probe(record.path))
            digest = index.digest(record.path, teller.log.check)
        except (UnusableClip, OSError) as error:
            teller.leave_out(record, str(error))
        else:
            entries.append(Entry(plan, teller.report.keep(plan), digest))
        done(number)
    return entries


def _item(entry: Entry, captions: CaptionSettings, seed: int) -> Item:
    record, plan = entry.plan.record, entry.plan
    texts = training_texts(record, captions, seed)
    return Item(record.name, record.path, texts, plan.example, len(plan.starts), record.repeats, entry.key, record.weight)


def _sample_size(shape: Shaper, items: list[Item]) -> Bucket:
    """The first bucket as it was rounded, or the size most clips have."""
    if not shape.buckets:
        return commonest_size(items)
    first = shape.buckets[0]
    return first.model_copy(update={"frames": shape.spec.frame_rule.floor(first.frames)})


def _require_some(report: DatasetReport, dataset: DatasetSettings, scan: Scan) -> None:
    """Raises UserError with every clip's reason if nothing can be trained on."""
    if report.kept:
        return
    where = ", ".join(source.location for source in dataset.sources)
    if not dataset.sources:
        raise fail("dataset.sources", "no source of clips is given.", "Add a folder that holds clips.")
    if not scan.clips and not scan.skipped:
        seen = ", ".join(f"{count} {extension}" for extension, count in sorted(scan.seen.items())) or "nothing"
        raise fail(where, f"no clip was found; there is {seen}.", f"Clips end in {', '.join(CLIP_EXTENSIONS)}.")
    problems = [Problem(clip.path, f"{clip.skipped}.") for clip in report.skipped]
    raise UserError([Problem(where, "none of the clips can be used:"), *problems])
