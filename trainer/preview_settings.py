"""Settings of a dataset preview: how many clips are decoded to be looked at, and how much of each."""

from __future__ import annotations

from .settings import Settings, setting


class PreviewSettings(Settings):
    """How much of a dataset is shown."""

    clips: int = setting(6, "Clips", "Clips that are decoded and shown; the report is always of all clips.", unit="clips", ge=1, le=48)
    frames: int = setting(4, "Frames", "Frames shown of each clip, evenly spaced over its first example.", unit="frames", ge=1, le=16)
    first: int = setting(1, "First clip", "Number of the clip that the sheet begins with, to leaf through a large dataset.", ge=1, le=10**6)
