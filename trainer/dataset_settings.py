"""Settings of the dataset: where the clips come from and how they become training examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import ValidationError, field_validator

from .caption_settings import CaptionEdit
from .errors import Problem, UserError, fail, from_validation
from .settings import Settings, setting
from .source_settings import ClipSource, ParquetFolder, Source


class Bucket(Settings):
    """A clip size to train at: frames × height × width, in pixels."""

    frames: int = setting(17, "Frames", "Frames of the clip, at the family's frame rate.", unit="frames", ge=1, le=2048)
    height: int = setting(480, "Height", "Height of the frames.", unit="px", ge=16, le=8192)
    width: int = setting(832, "Width", "Width of the frames.", unit="px", ge=16, le=8192)

    def __str__(self) -> str:
        return f"{self.frames}x{self.height}x{self.width}"

    @classmethod
    def parse(cls, text: str, where: str = "buckets") -> Bucket:
        """Reads "49x480x832" (frames x height x width); raises UserError naming the text."""
        parts = text.lower().replace("×", "x").replace(" ", "").split("x")
        if len(parts) != 3 or not all(part.isdigit() for part in parts):
            raise fail(where, f"'{text}' is not a size.", "Write frames x height x width, such as 49x480x832.")
        try:
            return cls(frames=int(parts[0]), height=int(parts[1]), width=int(parts[2]))
        except ValidationError as error:
            raise from_validation(error, list(cls.model_fields), where) from None


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


class DatasetSettings(Settings):
    """The clips and how they become training examples."""

    sources: list[Source] = setting(list, "Sources", "Where the clips come from.")
    fps: float = setting(
        0.0, "Frame rate", "Frame rate clips are retimed to, by presentation time; 0 uses the model's own.",
        unit="frames/s", ge=0, le=240, advanced=True,
    )  # fmt: skip
    buckets: list[Bucket] = setting(
        list, "Buckets", "Clip sizes; a clip takes the longest that it fills, of the nearest shape. Empty: chosen from the clips."
    )
    windows: WindowSettings | None = setting(None, "FramePack windows", "Sliding windows; empty trains on whole buckets.")

    @field_validator("fps")
    @classmethod
    def _a_rate(cls, fps: float) -> float:
        if 0 < fps < 1:
            raise ValueError("a frame rate is at least 1, or 0 for the model's own")
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
