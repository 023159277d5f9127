"""plan_dataset: from sources and settings to a plan of every clip; nothing is decoded but for scene cuts, nothing encoded."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ..errors import Problem, UserError, fail
from ..events import EventLog, Phase
from ..files import reason
from ..job import CaptionSettings, DatasetSettings
from ..models.base import FamilySpec
from .cache import TensorCache
from .captions import UNCAPTIONED, is_left_out
from .clips import Entry
from .content import Content
from .known_probes import KnownProbes
from .likeness import alike_groups, exact_groups
from .plan import ClipPlan, Shaper, shaper
from .report import DatasetReport
from .scenes import SceneCuts
from .sources.endings import CLIP_EXTENSIONS
from .sources.record import ChangedFile, ClipRecord, Scan, UnusableClip
from .sources.scan import scan, unpacked_below
from .teller import Teller

_LISTED = "Put a file there, or correct the list or archive that names it."


@dataclass(frozen=True)
class DatasetPlan:
    """What becomes of every clip: `entries` are those to train on as far as is known before decoding; `teller` has the report."""

    settings: DatasetSettings
    shape: Shaper
    found: Scan
    entries: list[Entry]
    teller: Teller
    planner: Planner

    def renew(self, entries: Sequence[Entry]) -> list[Entry]:
        """Plans clips anew whose files have changed since; those that can be used as they are now, the others are reported."""
        usable = list[Entry]()
        for entry in entries:
            try:
                entry.plan, entry.content = self.planner.plan(entry.plan.record)
            except UnusableClip as error:
                self.teller.drop(entry.report, error)
            else:
                entry.report.describe(entry.plan)
                usable.append(entry)
        self.planner.probe.save()
        return usable

    @property
    def usable(self) -> list[Entry]:
        """The entries that have not turned out unusable since."""
        return [entry for entry in self.entries if not entry.report.skipped]

    def require_clips(self) -> None:
        """Raises UserError if no source held a clip."""
        where = ", ".join(source.location for source in self.settings.sources)
        if not self.settings.sources:
            raise fail("dataset.sources", "no source of clips is given.", "Add a folder that holds clips.")
        if not self.found.clips and not self.found.skipped:
            seen = ", ".join(f"{count} {extension}" for extension, count in sorted(self.found.seen.items())) or "nothing"
            raise fail(where, f"no clip was found; there is {seen}.", f"Clips end in {', '.join(CLIP_EXTENSIONS)}.")

    def require_some(self) -> None:
        """Raises UserError with every clip's reason if nothing can be trained on."""
        report = self.teller.report
        if report.kept:
            return
        self.require_clips()
        where = ", ".join(source.location for source in self.settings.sources)
        problems = [Problem(clip.path, f"{clip.skipped}.", clip.cure) for clip in report.skipped]
        raise UserError([Problem(where, "none of the clips can be used:"), *problems])

    def compare(self) -> None:
        """Adds to the report which of the usable clips are the same file, and which others look alike, as far as their look is known."""
        report, usable = self.teller.report, self.usable
        seen = [(entry, entry.look) for entry in usable if entry.look is not None]
        same = exact_groups([entry.content.digest for entry in usable])
        report.duplicates = [[usable[place].report.name for place in group] for group in same]
        groups = [[seen[place][0] for place in group] for group in alike_groups([look for _, look in seen])]
        report.alike = [[entry.report.name for entry in group] for group in groups if len({entry.content.digest for entry in group}) > 1]
        report.compared = len(seen)


def plan_dataset(
    dataset: DatasetSettings,
    captions: CaptionSettings,
    spec: FamilySpec,
    store: TensorCache,
    log: EventLog,
    *,
    seed: int = 0,
    may_download: bool = False,
) -> DatasetPlan:
    """Scans the sources and plans every clip, as training does and as a preview shows.

    Clips that cannot be used are in the report, and not told of yet. Raises UserError for a source or setting that cannot be
    followed, Interrupted on cancel.
    """
    shape, roundings = shaper(dataset, spec, seed)
    teller = Teller(log, DatasetReport(shape.fps))
    for text in roundings:
        teller.notice(text)
    log.emit(Phase("prepare", "Reading clips"))
    with _without_collection():
        found = scan(dataset.sources, store.folder, may_download, log.check)
        _mark_unpacked(found, store)
        teller.report.seen = dict(found.seen)
        for problem in found.notices:
            teller.notice(f"{problem.found} {problem.cure}".strip(), problem.where)
        for record, why in found.skipped:
            teller.report.skip(record, why, _LISTED)
        planner = Planner(captions, shape, store, log.check)
        return DatasetPlan(dataset, shape, found, _planned(found, planner, teller), teller, planner)


@contextmanager
def _without_collection() -> Iterator[None]:
    """No search for unreachable cycles: over the millions of objects of a large plan, which all stay, it takes a fifth of the time."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def _mark_unpacked(found: Scan, store: TensorCache) -> None:
    """Notes the use of what was unpacked from archives, before anything takes long."""
    if found.memories:
        folder = unpacked_below(store.folder)
        for path in (*found.memories, *(clip.path for clip in found.clips if clip.path.is_relative_to(folder))):
            store.used.mark(path)
        store.used.save()


class Planner:
    """Plans clips one by one; what is found by probing and of scene cuts is remembered."""

    def __init__(self, captions: CaptionSettings, shape: Shaper, store: TensorCache, check: Callable[[], None]) -> None:
        self._captions, self._shape, self._store, self._check = captions, shape, store, check
        self._cuts = SceneCuts(store, shape.settings.scene_threshold) if shape.settings.scene_cuts == "split" else None
        self.probe = KnownProbes(store.folder)

    def plan(self, record: ClipRecord) -> tuple[ClipPlan, Content]:
        """A clip's plan and what its file holds; scene cuts are found here, as the plan must know them.

        A file that changes meanwhile is read once more. Raises UnusableClip.
        """
        if is_left_out(record, self._captions):
            raise UnusableClip(UNCAPTIONED, "Write a caption file for it, or let clips without caption be trained.")
        try:
            return self._planned(record)
        except ChangedFile:
            return self._planned(record)

    def _planned(self, record: ClipRecord) -> tuple[ClipPlan, Content]:
        path, check = record.path, self._check
        try:
            content = self._store.index.content(path, check)
        except OSError as error:
            raise UnusableClip(f"cannot be read ({reason(error)})", "Check that the file can be read.") from error
        clip = self.probe(path, content, check)
        cuts = self._cuts(path, clip, content, check) if self._cuts else ()
        return self._shape.plan(record, clip, content.digest, cuts), content


def _planned(scan: Scan, planner: Planner, teller: Teller) -> list[Entry]:
    """Every usable clip's plan; the others are reported."""
    entries = list[Entry]()
    done = teller.log.progress(len(scan.clips), "clips read")
    for number, record in enumerate(scan.clips, 1):
        try:
            plan, content = planner.plan(record)
        except UnusableClip as error:
            teller.report.skip(record, str(error), error.cure)
        else:
            entries.append(Entry(plan, teller.report.keep(plan), content))
        done(number)
    planner.probe.save()
    return entries
