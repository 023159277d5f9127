"""prepare_dataset: from sources and settings to a dataset whose encodings are all cached."""

from __future__ import annotations

from collections.abc import Sequence
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
from .likeness import alike_groups, exact_groups
from .plan import Shaper, shaper
from .probe import probe
from .report import CaptionStatistics, DatasetReport
from .scenes import SceneCuts
from .sources.endings import CLIP_EXTENSIONS
from .sources.record import Scan, UnusableClip
from .sources.scan import scan
from .teller import Teller
from .texts import TextCache

if TYPE_CHECKING:
    from ..models.base import ModelFamily
    from .encoders import Encoders

_LISTED = "Correct the list or archive that names it, or put the file where it says."


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
    """Scans, plans and encodes what is missing; `seed` is that of all random variants, of captions and of clips.

    Clips that cannot be used are skipped and reported. Raises UserError if none is left, Interrupted on cancel.
    """
    store = TensorCache(cache, ContentIndex(cache / "index.json"))
    shape, roundings = shaper(dataset, family.spec, seed)
    teller = Teller(log, DatasetReport(shape.fps))
    for text in roundings:
        teller.notice(text)
    log.emit(Phase("prepare", "Reading clips"))
    found = scan(dataset.sources, cache, may_download, log.check)
    teller.report.seen = dict(found.seen)
    for problem in found.notices:
        teller.notice(f"{problem.found} {problem.cure}".strip(), problem.where)
    for record, reason in found.skipped:
        teller.leave_out(record, reason, _LISTED)
    entries = _planned(found, captions, shape, store, teller)
    clips = ClipCache(family, encoders, store, log, dataset.dataloader_threads) if entries else None
    if clips:
        clips.add(entries, lambda plan, error: teller.skip(plan.record.path, str(error)))
    _require_some(teller.report, dataset, found)
    entries = [entry for entry in entries if not entry.report.skipped]
    items = [_item(entry, captions, seed) for entry in entries]
    texts = TextCache(family, encoders, store, log)
    texts.add(["", *(caption for item in items for caption in item.captions)])
    teller.report.texts = CaptionStatistics.of([item.captions for item in items])
    if clips:
        _compare(entries, clips, teller.report)
    teller.summary()
    store.index.save()
    return Dataset(tuple(items), shape.windows, _sample_size(shape, items), teller.report, store, texts)


def _planned(scan: Scan, captions: CaptionSettings, shape: Shaper, store: TensorCache, teller: Teller) -> list[Entry]:
    """Every usable clip's plan and content hash; scene cuts are found here, as the plan must know them."""
    entries, check = list[Entry](), teller.log.check
    split = shape.settings.scene_cuts == "split"
    cuts_of = SceneCuts(store.folder, shape.settings.scene_threshold) if split else None
    done = teller.log.progress(len(scan.clips), "clips read")
    for number, record in enumerate(scan.clips, 1):
        try:
            if is_left_out(record, captions):
                cure = "Write a caption file for it, or let clips without caption be trained."
                raise UnusableClip("has no caption, and such clips are to be skipped", cure)
            clip = probe(record.path)
            digest = store.index.digest(record.path, check)
            plan = shape.plan(record, clip, digest, cuts_of(record.path, clip, digest, check) if cuts_of else ())
        except UnusableClip as error:
            teller.leave_out(record, str(error), error.cure)
        except OSError as error:
            teller.leave_out(record, str(error), "Check that the file can be read.")
        else:
            entries.append(Entry(plan, teller.report.keep(plan), digest))
        done(number)
    return entries


def _compare(entries: Sequence[Entry], clips: ClipCache, report: DatasetReport) -> None:
    """Finds clips that are copies of others, byte for byte or by the look of a frame."""
    names = [entry.report.name for entry in entries]
    report.duplicates = [[names[place] for place in group] for group in exact_groups([entry.digest for entry in entries])]
    groups = alike_groups([clips.look(entry) for entry in entries])
    report.alike = [[names[place] for place in group] for group in groups if len({entries[place].digest for place in group}) > 1]


def _item(entry: Entry, captions: CaptionSettings, seed: int) -> Item:
    record, plan = entry.plan.record, entry.plan
    texts = training_texts(record, captions, seed)
    return Item(
        record.name, record.path, texts, plan.example, len(plan.starts), record.repeats, entry.keys[0], record.weight,
        entry.keys[1:], plan.pieces,
    )  # fmt: skip


def _sample_size(shape: Shaper, items: list[Item]) -> Bucket:
    """The first bucket as it was rounded, or the size most clips have."""
    first = shape.sizes.first
    if first is None:
        return commonest_size(items)
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
    problems = [Problem(clip.path, f"{clip.skipped}.", clip.cure) for clip in report.skipped]
    raise UserError([Problem(where, "none of the clips can be used:"), *problems])
