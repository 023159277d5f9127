"""plan_dataset: from sources and settings to a plan of every clip; nothing is decoded but for scene cuts, nothing encoded."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import Problem, UserError, fail
from ..events import EventLog, Phase
from ..job import CaptionSettings, DatasetSettings
from ..models.base import FamilySpec
from .cache import TensorCache
from .captions import UNCAPTIONED, is_left_out
from .clips import Entry
from .known_probes import KnownProbes
from .likeness import alike_groups, exact_groups
from .plan import Shaper, shaper
from .report import DatasetReport
from .scenes import SceneCuts
from .sources.endings import CLIP_EXTENSIONS
from .sources.record import Scan, UnusableClip
from .sources.scan import scan, unpacked_below
from .teller import Teller

_LISTED = "Correct the list or archive that names it, or put the file where it says."


@dataclass(frozen=True)
class DatasetPlan:
    """What becomes of every clip: `entries` are those to train on as far as is known before decoding; `teller` has the report."""

    settings: DatasetSettings
    shape: Shaper
    found: Scan
    entries: list[Entry]
    teller: Teller

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
        report.duplicates = [[usable[place].report.name for place in group] for group in exact_groups([entry.digest for entry in usable])]
        groups = [[seen[place][0] for place in group] for group in alike_groups([look for _, look in seen])]
        report.alike = [[entry.report.name for entry in group] for group in groups if len({entry.digest for entry in group}) > 1]
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
    found = scan(dataset.sources, store.folder, may_download, log.check)
    _mark_unpacked(found, store)
    teller.report.seen = dict(found.seen)
    for problem in found.notices:
        teller.notice(f"{problem.found} {problem.cure}".strip(), problem.where)
    for record, reason in found.skipped:
        teller.report.skip(record, reason, _LISTED)
    return DatasetPlan(dataset, shape, found, _planned(found, captions, shape, store, teller), teller)


def _mark_unpacked(found: Scan, store: TensorCache) -> None:
    """Notes the use of what was unpacked from archives, before anything takes long."""
    if found.memories:
        folder = unpacked_below(store.folder)
        for path in (*found.memories, *(clip.path for clip in found.clips if clip.path.is_relative_to(folder))):
            store.used.mark(path)
        store.used.save()


def _planned(scan: Scan, captions: CaptionSettings, shape: Shaper, store: TensorCache, teller: Teller) -> list[Entry]:
    """Every usable clip's plan and content hash; scene cuts are found here, as the plan must know them."""
    entries, check = list[Entry](), teller.log.check
    split = shape.settings.scene_cuts == "split"
    cuts_of = SceneCuts(store, shape.settings.scene_threshold) if split else None
    probe = KnownProbes(store)
    done = teller.log.progress(len(scan.clips), "clips read")
    for number, record in enumerate(scan.clips, 1):
        try:
            if is_left_out(record, captions):
                cure = "Write a caption file for it, or let clips without caption be trained."
                raise UnusableClip(UNCAPTIONED, cure)
            digest = store.index.digest(record.path, check)
            clip = probe(record.path, digest)
            plan = shape.plan(record, clip, digest, cuts_of(record.path, clip, digest, check) if cuts_of else ())
        except UnusableClip as error:
            teller.report.skip(record, str(error), error.cure)
        except OSError as error:
            teller.report.skip(record, str(error), "Check that the file can be read.")
        else:
            entries.append(Entry(plan, teller.report.keep(plan), digest))
        done(number)
    probe.save()
    return entries
