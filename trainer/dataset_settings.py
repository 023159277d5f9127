"""Settings of the dataset: where the clips come from and how they become training examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import field_validator

from .caption_settings import CaptionEdit
from .errors import Problem, UserError, fail
from .frame_settings import FrameSampling
from .settings import Settings, setting
from .size_settings import ClipSizes
from .source_settings import ClipSource, ParquetFolder, Source

KEEP_FPS = -1.0  # the setting that leaves each clip at its own frame rate


class WindowSettings(Settings):
    """FramePack sliding windows: a clip of N frames gives N - W + 1 overlapping windows of W frames (stride 1)."""

    size: int = setting(33, "Window size", "Frames in a window; rounded to the family's frame rule.", unit="frames", ge=1, le=2048)
    stride: int = setting(1, "Stride", "Frames between the starts of neighbouring windows.", unit="frames", ge=1, le=1024)
    per_clip: int = setting(
        0, "Windows per clip", "Windows drawn at random from a clip each time it is seen; 0 takes all of them.",
        unit="windows", ge=0, le=4096,
    )  # fmt: skip
    grouping: Literal["one step", "independent"] = setting(
        "one step", "Grouping",
        "one step: a clip's windows are micro-batches of one optimizer step, their losses averaged. "
        "independent: every window is a training example of its own, of weight 1/n.",
    )  # fmt: skip


class DatasetSettings(ClipSizes, FrameSampling):
    """The clips and how they become training examples."""

    sources: list[Source] = setting(list, "Sources", "Where the clips come from.")
    fps: float = setting(
        0.0, "Frame rate", "Frame rate clips are retimed to, by presentation time; 0 uses the model's own, -1 keeps each clip's: every "
        "frame of the file is used once.", unit="frames/s", ge=KEEP_FPS, le=240, advanced=True,
    )  # fmt: skip
    windows: WindowSettings | None = setting(None, "FramePack windows", "Sliding windows; empty trains on whole buckets.")

    @field_validator("fps", mode="before")
    @classmethod
    def _keep(cls, fps: Any) -> Any:
        return KEEP_FPS if fps == "keep" else fps

    @field_validator("fps")
    @classmethod
    def _a_rate(cls, fps: float) -> float:
        if fps < 1 and fps not in (0, KEEP_FPS):
            raise ValueError("a frame rate is at least 1, 0 for the model's own, or -1 to keep each clip's")
        return fps

    @property
    def clip_sources(self) -> list[ClipSource]:
        """The sources whose clips are decoded and encoded."""
        return [source for source in self.sources if not isinstance(source, ParquetFolder)]

    def with_source(self, source: Source) -> DatasetSettings:
        """A copy with one source more."""
        return self.model_copy(update={"sources": [*self.sources, source]})

    def with_caption_edit(self, edit: CaptionEdit) -> DatasetSettings:
        """A copy whose sources edit their captions once more; raises UserError for captions that are encoded already."""
        sources: list[Source] = []
        for number, source in enumerate(self.sources):
            if isinstance(source, ParquetFolder):
                found = f"the captions in '{source.folder}' are encoded already and cannot be edited."
                raise fail(f"dataset.sources.{number}", found, "Edit the captions of other sources before combining them with Parquet.")
            sources.append(source.model_copy(update={"caption_edits": [*source.caption_edits, edit]}))
        return self.model_copy(update={"sources": sources})


def combined(datasets: Sequence[DatasetSettings]) -> DatasetSettings:
    """One dataset of all sources; a setting that only some of them change is taken from those.

    Raises UserError naming each setting that two of them change differently.
    """
    values: dict[str, Any] = {"sources": [source for dataset in datasets for source in dataset.sources]}
    problems = []
    for name, field in DatasetSettings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        changed = [value for dataset in datasets if (value := getattr(dataset, name)) != default]
        if name == "sources" or not changed:
            continue
        values[name] = changed[0]
        if any(value != changed[0] for value in changed):
            problems.append(Problem(f"dataset.{name}", "is set differently in the datasets.", "Set it once, after combining them."))
    if problems:
        raise UserError(problems)
    return DatasetSettings(**values)
