"""What text a clip is trained with. Dropout is not here: it is drawn by key at step time."""

from __future__ import annotations


def with_prefix(prefix: str, caption: str) -> str:
    """The caption with the trigger before it, one space between; either alone if the other is empty."""
    return " ".join(part for part in (prefix.strip(), caption) if part)
