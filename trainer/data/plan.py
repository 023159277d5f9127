"""The plan of a clip: retimed frames, bucket and examples, decided from its probe before anything is decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..dataset_settings import KEEP_FPS
from ..errors import fail
from ..job import Bucket, DatasetSettings, WindowSettings
from ..models.base import FamilySpec
from .buckets import Sizes, sizes
from .probe import Probe
from .sources.record import ClipRecord, UnusableClip
from .takes import Drawing, Take, takes, windowed_takes
from .timed_captions import section_ranges
from .timeline import Timeline, timeline

_LONGER = "Use a longer clip, a smaller bucket or window, or a higher frame rate."


@dataclass(frozen=True)
class ClipPlan:
    """How one clip becomes examples of one size, in one or several random variants."""

    record: ClipRecord
    probe: Probe
    line: Timeline
    example: Bucket  # size of one example: the window, or the whole bucket
    takes: tuple[Take, ...]
    pieces: bool = False  # each example is trained as an example of its own
    own_size: bool = False  # the clip is smaller than every bucket, and has a size of its own
    sections: int = 1  # into which the encoding of an example is cut; they are pieces

    @property
    def indices(self) -> tuple[int, ...]:
        """Source frame of each kept target frame, of the first variant."""
        return self.takes[0].indices

    @property
    def starts(self) -> tuple[int, ...]:
        """First of the kept frames of each example, of the first variant."""
        return self.takes[0].starts

    def frames_of(self, take: Take) -> list[tuple[int, ...]]:
        """The file's frames that each window of a variant shows, a section where examples are cut into these; none twice."""
        order, cuts = take.order or range(self.example.frames), section_ranges(self.example.frames, self.sections)
        return [tuple(sorted({take.indices[start + order[place]] for place in cut})) for start in take.starts for cut in cuts]


@dataclass(frozen=True)
class Shaper:
    """The dataset's settings on the family's grid; plans each clip."""

    spec: FamilySpec
    settings: DatasetSettings
    sizes: Sizes
    windows: WindowSettings | None
    seed: int = 0

    @property
    def fps(self) -> float:
        """The rate clips are retimed to, or the family's own where each clip keeps its own."""
        return self.settings.fps if self.settings.fps > 0 else self.spec.fps

    def plan(self, record: ClipRecord, probe: Probe, content: str = "", cuts: Sequence[int] = ()) -> ClipPlan:
        """The clip's plan; raises UnusableClip if it is too short, saying what would fit.

        `content` is the hash of its file, by which its random variants are drawn, `cuts` its frames that begin a scene.
        """
        keeps = self.settings.fps == KEEP_FPS
        line = timeline(probe, KEEP_FPS if keeps else self.fps, self.settings.max_duration, cuts)
        drawing = Drawing(self.seed, content)
        frames = min(len(line.longest), self.settings.max_frames or len(line.longest))
        still = len(line.source) == 1 and self.spec.frame_rule.allows(1)
        if self.windows is not None and not still:
            return self._windowed(record, probe, line, self.windows, drawing)
        bucket = self._bucket(probe, frames, False)
        if bucket is None:
            length = self._length(probe, line, frames)
            why = f"{length}, shorter than every bucket (least {self.sizes.least} frames); {self._largest(frames)}"
            raise UnusableClip(why, _LONGER)
        variants = takes(line, bucket.frames, probe.keys, self.settings, self.settings.crop_position, drawing)
        pieces, sections = self.settings.gives_pieces or bool(self.spec.section_frames), self.spec.sections(bucket.frames)
        return ClipPlan(record, probe, line, bucket, variants, pieces, self._own(bucket), sections)

    def _windowed(self, record: ClipRecord, probe: Probe, line: Timeline, windows: WindowSettings, drawing: Drawing) -> ClipPlan:
        total = min(len(line.source), self.settings.max_frames or len(line.source))
        bucket = self._bucket(probe, total, True)
        assert bucket is not None  # with windows every bucket is open to every clip
        reach = min(total, bucket.frames) if self.sizes.longest else total
        variants = windowed_takes(line, reach, windows, self.settings, self.settings.crop_position, drawing)
        if not variants:
            longest = max(min(scene.stop, reach) - scene.start for scene in line.scenes)
            why = f"{self._length(probe, line, longest)}, shorter than the window of {windows.size}; {self._largest(longest)}"
            raise UnusableClip(why, _LONGER)
        size = Bucket(frames=windows.size, height=bucket.height, width=bucket.width)
        return ClipPlan(record, probe, line, size, variants, own_size=self._own(size))

    def _bucket(self, probe: Probe, frames: int, windowed: bool) -> Bucket | None:
        bucket = self.sizes.choose(frames, probe.height, probe.width, windowed)
        if bucket and self.settings.no_upscale and (bucket.height > probe.height or bucket.width > probe.width):
            why = (
                f"is {probe.height}x{probe.width}, smaller than the model takes ({bucket.height}x{bucket.width}), and is not to be enlarged"
            )
            raise UnusableClip(why, "Use a larger clip, or set dataset.no_upscale to false.")
        return bucket

    def _own(self, size: Bucket) -> bool:
        return bool(self.sizes.buckets) and not any((b.height, b.width) == (size.height, size.width) for b in self.sizes.buckets)

    def _length(self, probe: Probe, line: Timeline, frames: int) -> str:
        length = f"{line.whole} frames at {line.fps:g} frames/s ({len(probe.times)} at {probe.fps:.3f} in the file)"
        if len(line.scenes) > 1:
            length += f", at most {frames} of them without a scene cut"
        elif frames < line.whole:
            length += f", of which {frames} may be used"
        return length

    def _largest(self, frames: int) -> str:
        largest = self.spec.frame_rule.floor(frames)
        return f"{largest} is the largest that fits" if largest <= frames else f"the model needs at least {largest}"


def shaper(settings: DatasetSettings, spec: FamilySpec, seed: int = 0) -> tuple[Shaper, list[str]]:
    """The settings on the family's grid, with a line for each rounding and for what changes how motion looks.

    Raises UserError if no bucket holds a window, or windows are to be cut another way at the same time.
    """
    windows = settings.windows
    if windows is not None and spec.section_frames:
        found = f"are not for this model, which cuts clips into sections of {spec.section_frames} frames by itself."
        raise fail("dataset.windows", found, "Remove the windows: in spite of their name they belong to models that make a video at once.")
    chosen, problems = sizes(settings, spec, windows is not None)
    notices = [str(problem) for problem in problems]
    if windows is not None:
        size = spec.frame_rule.floor(windows.size)
        if size != windows.size:
            notices.append(f"dataset.windows.size: {windows.size} frames were rounded to {size}: the model takes {spec.frame_rule}.")
        windows = windows.model_copy(update={"size": size})
        chosen = _holding(chosen, size, spec)
        if settings.frame_sample_strategy != "head":
            found = f"'{settings.frame_sample_strategy}' is not used with windows, which take all parts of a clip."
            raise fail("dataset.frame_sample_strategy", found, "Set it to head, or remove the windows.")
        settings = settings.model_copy(update={"temporal_augmentation": "reverse" if settings.reverses else "off"})
    return Shaper(spec, settings, chosen, windows, seed), notices + _warnings(settings)


def _warnings(settings: DatasetSettings) -> list[str]:
    """What of the sampling changes motion, or changes nothing."""
    told = []
    if settings.frame_sample_strategy == "uniform":
        told.append("dataset.frame_sample_strategy: uniform speeds motion up: frames are spread over the whole clip.")
    if settings.frame_shuffling:
        told.append("dataset.frame_shuffling: the frames of every example are shuffled, which destroys motion.")
    if "crop" in settings.temporal_augmentation and not settings.crops:
        others = f"{settings.frame_sample_strategy}, which takes other parts of a clip already"
        told.append(f"dataset.temporal_augmentation: crop adds nothing to {others}.")
    return told


def _holding(chosen: Sizes, size: int, spec: FamilySpec) -> Sizes:
    """The buckets a window fits into."""
    holding = chosen.holding(size)
    if chosen.longest and not holding.longest:
        cure = f"Use a window of {spec.frame_rule.floor(chosen.longest)} or longer buckets."
        raise fail("dataset.windows.size", f"a window of {size} frames is longer than every bucket (longest {chosen.longest}).", cure)
    return holding
