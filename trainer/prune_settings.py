"""Settings of pruning: which files of the cache go, and whether they really do."""

from __future__ import annotations

from .settings import Settings, setting


class PruneSettings(Settings):
    """What is taken out of the cache."""

    unused_for: int = setting(
        30, "Unused for", "How long no dataset that was prepared used a file of the cache; 0 is everything.",
        unit="days", ge=0, le=36500,
    )  # fmt: skip
    remove: bool = setting(False, "Remove", "Removes those files. Off only tells how many there are, and their size.")
