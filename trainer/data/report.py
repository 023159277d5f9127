"""The dataset report: what was kept, shortened, retimed or dropped and why; as JSON and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import write_bytes, write_json
from .plan import ClipPlan
from .sources.record import ClipRecord
from .timed_captions import timed, unused_spans

if TYPE_CHECKING:
    from .sampler import Sampler


_BAR = 40  # characters of the longest bar


@dataclass
class ClipReport:
    """One clip: `skipped` says why it is not trained on, empty if it is, and `cure` what to do; sizes are height × width in px."""

    name: str
    path: str
    caption: str  # "file", "setting" or "none"
    skipped: str = ""
    cure: str = ""
    source_frames: int = 0
    source_fps: float = 0.0
    source_size: str = ""
    target_fps: float = 0.0
    retimed: bool = False  # frames of the file are left out or shown more than once
    retimed_frames: int = 0  # the whole clip at the target rate
    used_frames: int = 0
    source_indices: tuple[int, ...] = ()  # of the used frames, of the first variant
    scene_cuts: tuple[int, ...] = ()  # frames at the target rate that begin a new scene
    bucket: str = ""
    windows: int = 0  # examples of one variant
    sections: int = 1  # that each of these is cut into
    variants: int = 1
    enlarged: bool = False  # the clip is lower or narrower than its bucket
    own_size: bool = False  # the clip is smaller than every bucket, and is not enlarged
    hdr: str = ""  # "PQ" or "HLG", which decoding maps to SDR
    interlaced: bool = False  # decoding makes whole frames of its fields
    spans: int = 0  # of time that its captions tell of
    unused_spans: tuple[str, ...] = ()  # those of them that no example is captioned with
    caption_faults: tuple[str, ...] = ()  # what in its captions seems to be a span and cannot be used

    def describe(self, plan: ClipPlan) -> None:
        """Tells how the clip is planned, in place of what was told before."""
        clip, size, line = plan.probe, plan.example, plan.line
        self.source_frames, self.source_fps, self.source_size = len(clip.times), round(clip.fps, 3), f"{clip.height}x{clip.width}"
        self.target_fps, self.retimed, self.retimed_frames = round(line.fps, 3), line.retimed, line.whole
        self.used_frames, self.source_indices = len(plan.indices), plan.indices
        self.scene_cuts = tuple(scene.start for scene in line.scenes[1:])
        self.bucket, self.windows, self.variants = str(size), len(plan.starts), len(plan.takes)
        self.sections = plan.sections
        self.enlarged = clip.height < size.height or clip.width < size.width
        self.own_size, self.hdr, self.interlaced = plan.own_size, clip.colour.hdr, clip.interlaced
        told = list(map(timed, plan.record.captions))
        self.spans, self.caption_faults = sum(len(caption.spans) for caption in told), tuple(fault for one in told for fault in one.faults)
        self.unused_spans = tuple(unused_spans(plan)) if self.spans else ()

    @property
    def shortened(self) -> bool:
        """Whether frames of the retimed clip are left out."""
        return self.used_frames < self.retimed_frames

    def __str__(self) -> str:
        if self.skipped:
            return f"{self.name}: skipped: {self.skipped}. {self.cure}".rstrip(". ") + "."
        used = f", {self.used_frames} used" if self.shortened else ""
        windows = f" × {self.windows} windows" if self.windows > 1 else ""
        windows += f" × {self.sections} sections" if self.sections > 1 else ""
        variants = f" × {self.variants} variants" if self.variants > 1 else ""
        cuts = f", scene cuts at {', '.join(map(str, self.scene_cuts))}" if self.scene_cuts else ""
        spans = f", {self.spans} captioned spans" if self.spans else ""
        spans += f", of which no example has {', '.join(self.unused_spans)}" if self.unused_spans else ""
        source = f"{self.source_frames} frames at {self.source_fps:g} frames/s"
        made = (f", {self.hdr} tone-mapped to SDR" if self.hdr else "") + (", deinterlaced" if self.interlaced else "")
        frames = f"{self.retimed_frames} at {self.target_fps:g}{cuts}{used}"
        return f"{self.name}: {source}{made} -> {frames} -> {self.bucket}{windows}{variants}{spans}"


@dataclass
class CaptionStatistics:
    """What the texts are that are trained with; words are parted by spaces."""

    texts: int = 0
    mean_words: float = 0.0
    longest_words: int = 0
    empty: int = 0
    most_variants: int = 0  # texts of one clip

    @classmethod
    def of(cls, captions: Sequence[Sequence[str]]) -> CaptionStatistics:
        """Over every clip's texts."""
        words = [len(text.split()) for texts in captions for text in texts]
        mean = round(sum(words) / max(len(words), 1), 1)
        return cls(len(words), mean, max(words, default=0), words.count(0), max(map(len, captions), default=0))

    def __str__(self) -> str:
        return (
            f"caption texts: {self.texts}, mean {self.mean_words:g} words, longest {self.longest_words}, {self.empty} empty, "
            f"at most {self.most_variants} per clip"
        )


@dataclass
class DatasetReport:
    """The whole dataset; what is counted of an epoch is known once a sampler is, steps and effective batch once its schedule is."""

    target_fps: float
    clips: list[ClipReport] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)  # extension -> files
    notices: list[str] = field(default_factory=list)
    examples_per_epoch: int = 0  # as many steps at batch size 1; windows of one clip are one unless independent
    steps_per_epoch: int = 0
    effective_batch: str = ""
    texts: CaptionStatistics = field(default_factory=CaptionStatistics)
    duplicates: list[list[str]] = field(default_factory=list)  # clips with the same bytes
    alike: list[list[str]] = field(default_factory=list)  # clips of other bytes that look the same; one may be in several groups
    compared: int = 0  # clips of which the look is known

    def keep(self, plan: ClipPlan) -> ClipReport:
        """Adds a planned clip; it may still turn out unusable when it is decoded."""
        clip = ClipReport(plan.record.name, str(plan.record.path), plan.record.origin)
        clip.describe(plan)
        self.clips.append(clip)
        return clip

    def skip(self, record: ClipRecord, reason: str, cure: str = "") -> None:
        """Adds a clip that is not used, and what to do about it."""
        self.clips.append(ClipReport(record.name, str(record.path), record.origin, skipped=reason, cure=cure))

    def describe(self, sampler: Sampler) -> None:
        """Adds what depends on batch size and accumulation."""
        self.examples_per_epoch = sampler.examples_per_epoch
        self.steps_per_epoch, self.effective_batch = sampler.steps_per_epoch, sampler.effective_batch

    @property
    def kept(self) -> list[ClipReport]:
        """The clips that are trained on."""
        return [clip for clip in self.clips if not clip.skipped]

    @property
    def skipped(self) -> list[ClipReport]:
        """The clips that are not, each with its reason."""
        return [clip for clip in self.clips if clip.skipped]

    @property
    def buckets(self) -> dict[str, int]:
        """Kept clips per example size."""
        return dict(sorted(Counter(clip.bucket for clip in self.kept).items()))

    @property
    def captions(self) -> dict[str, int]:
        """Kept clips per origin of their caption."""
        counts = Counter(clip.caption for clip in self.kept)
        return {origin: counts[origin] for origin in ("file", "setting", "none")}

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON-ready dict."""
        clips = [{**asdict(clip), "shortened": clip.shortened} for clip in self.clips]
        return {**asdict(self), "clips": clips, **self._counts(), "buckets": self.buckets, "captions": self.captions}

    def overview(self) -> dict[str, Any]:
        """What fits on a node: counts, clips per bucket in order of size, the clips left out, notices."""
        buckets = sorted(self.buckets.items(), key=lambda bucket: [int(side) for side in bucket[0].split("x")])
        dropped = [{"name": clip.name, "why": clip.skipped, "cure": clip.cure} for clip in self.skipped]
        told = {"texts": str(self.texts), "epoch": " · ".join(self._epoch())}
        return {**self._counts(), "buckets": buckets, "dropped": dropped, "notices": self.notices, **told}

    def _counts(self) -> dict[str, int]:
        kept = self.kept
        return {
            "kept": len(kept), "skipped": len(self.skipped),
            "shortened": sum(clip.shortened for clip in kept), "retimed": sum(clip.retimed for clip in kept),
        }  # fmt: skip

    def write(self, folder: Path) -> None:
        """Writes dataset.json and dataset.txt."""
        write_json(folder / "dataset.json", self.as_dict())
        write_bytes(folder / "dataset.txt", ("\n".join(self.lines()) + "\n").encode(errors="backslashreplace"))

    def lines(self) -> list[str]:
        """The report as text: totals, then every clip."""
        return self.totals() + self.notices + list(map(str, self.clips))

    def totals(self) -> list[str]:
        """What is told of all clips together, as text."""
        counts, origin = self._counts(), self.captions
        text = [
            f"{counts['kept']} clips kept, {counts['skipped']} skipped, {counts['shortened']} shortened, {counts['retimed']} retimed",
            f"captions: {origin['file']} from files, {origin['setting']} from their source's setting, {origin['none']} without",
            str(self.texts),
            *self._timed(),
            *self._histogram(),
        ]
        text += self._epoch()
        if self.effective_batch:
            text.append(f"effective batch: {self.effective_batch}; {self.steps_per_epoch} steps per epoch")
        text += [f"the same file: {', '.join(group)}" for group in self.duplicates]
        return text + [f"look alike: {', '.join(group)}" for group in self.alike]

    def _epoch(self) -> list[str]:
        """Examples of an epoch, and of how many clips the look is known, if not of all."""
        text = [f"examples per epoch: {self.examples_per_epoch} (steps at batch size 1)"] if self.examples_per_epoch else []
        if self.compared < len(self.kept):
            text.append(f"look-alikes: {self.compared} of {len(self.kept)} clips are compared")
        return text

    def _timed(self) -> list[str]:
        """How many clips have captions of spans, and how many spans these are."""
        counts = [clip.spans for clip in self.kept if clip.spans]
        unused = sum(len(clip.unused_spans) for clip in self.kept)
        return [f"captions of spans of time: {sum(counts)} in {len(counts)} clips, {unused} of them in no example"] if counts else []

    def _histogram(self) -> list[str]:
        """A bar for each bucket."""
        buckets = self.buckets
        most, width = max(buckets.values(), default=1), max(map(len, buckets), default=0)
        bars = [f"  {bucket:{width}} {'█' * -(-count * _BAR // most)} {count}" for bucket, count in buckets.items()]
        return ["buckets:", *bars] if bars else []
