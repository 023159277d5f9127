"""The dataset report: what was kept, shortened, retimed or dropped and why; as JSON and as text."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from .plan import ClipPlan
from .sources.record import ClipRecord

if TYPE_CHECKING:
    from .sampler import Sampler


@dataclass
class ClipReport:
    """One clip: `skipped` says why it is not trained on, empty if it is; sizes are height × width in px."""

    name: str
    path: str
    caption: str  # "file", "setting" or "none"
    skipped: str = ""
    source_frames: int = 0
    source_fps: float = 0.0
    source_size: str = ""
    retimed_frames: int = 0  # the whole clip at the target rate
    used_frames: int = 0
    source_indices: tuple[int, ...] = ()  # of the used frames
    bucket: str = ""
    windows: int = 0
    enlarged: bool = False  # the clip has fewer pixels than its bucket
    hdr: str = ""  # "PQ" or "HLG", which decoding maps to SDR
    interlaced: bool = False  # decoding makes whole frames of its fields

    @property
    def shortened(self) -> bool:
        """Whether frames at the end are left out."""
        return self.used_frames < self.retimed_frames


@dataclass
class DatasetReport:
    """The whole dataset; steps and effective batch are known once a sampler is."""

    target_fps: float
    clips: list[ClipReport] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)  # extension -> files
    notices: list[str] = field(default_factory=list)
    steps_per_epoch: int = 0
    effective_batch: str = ""

    def keep(self, plan: ClipPlan) -> ClipReport:
        """Adds a planned clip; it may still turn out unusable when it is decoded."""
        clip, size = plan.probe, plan.example
        self.clips.append(ClipReport(
            plan.record.name, str(plan.record.path), plan.record.origin,
            source_frames=len(clip.times), source_fps=round(clip.fps, 3), source_size=f"{clip.height}x{clip.width}",
            retimed_frames=plan.retimed, used_frames=len(plan.indices), source_indices=plan.indices,
            bucket=str(size), windows=len(plan.starts),
            enlarged=clip.height < size.height or clip.width < size.width, hdr=clip.colour.hdr, interlaced=clip.interlaced,
        ))  # fmt: skip
        return self.clips[-1]

    def skip(self, record: ClipRecord, reason: str) -> None:
        """Adds a clip that is not used."""
        self.clips.append(ClipReport(record.name, str(record.path), record.origin, skipped=reason))

    def describe(self, sampler: Sampler) -> None:
        """Adds what depends on batch size and accumulation."""
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
        counts = {"kept": len(self.kept), "skipped": len(self.skipped), "shortened": sum(clip.shortened for clip in self.kept)}
        return {**asdict(self), "clips": clips, **counts, "buckets": self.buckets, "captions": self.captions}

    def lines(self) -> list[str]:
        """The report as text: totals, then every clip."""
        origin = self.captions
        text = [
            f"{len(self.kept)} clips kept, {len(self.skipped)} skipped, {sum(clip.shortened for clip in self.kept)} shortened",
            f"captions: {origin['file']} from files, {origin['setting']} from their source's setting, {origin['none']} without",
            "buckets: " + ", ".join(f"{bucket}: {count}" for bucket, count in self.buckets.items()),
        ]
        if self.effective_batch:
            text.append(f"effective batch: {self.effective_batch}; {self.steps_per_epoch} steps per epoch")
        return text + self.notices + [_line(clip, self.target_fps) for clip in self.clips]


def _line(clip: ClipReport, fps: float) -> str:
    if clip.skipped:
        return f"{clip.name}: skipped: {clip.skipped}"
    used = f", first {clip.used_frames} used" if clip.shortened else ""
    windows = f" × {clip.windows} windows" if clip.windows > 1 else ""
    source = f"{clip.source_frames} frames at {clip.source_fps:g} frames/s"
    made = (f", {clip.hdr} tone-mapped to SDR" if clip.hdr else "") + (", deinterlaced" if clip.interlaced else "")
    return f"{clip.name}: {source}{made} -> {clip.retimed_frames} at {fps:g}{used} -> {clip.bucket}{windows}"
