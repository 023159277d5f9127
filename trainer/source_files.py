"""How the files of dataset formats are called: what a folder holds is told by its files' names."""

from __future__ import annotations

from pathlib import Path

TABLES = ("metadata.csv", "metadata.jsonl", "metadata.json")
VIDEO_LISTS = ("videos.txt", "video.txt")
CAPTION_LISTS = ("prompts.txt", "captions.txt", "prompt.txt", "caption.txt")
TAR_EXTENSIONS = (".tar", ".tar.gz", ".tgz")
ROW_EXTENSIONS = (".parquet", ".arrow")


def is_tar(path: Path) -> bool:
    """Whether a file's name is that of a tar."""
    return path.name.lower().endswith(TAR_EXTENSIONS)


def is_rows(path: Path) -> bool:
    """Whether a file's name is that of Parquet or Arrow rows; the results that `datasets` keeps beside them are not."""
    return path.suffix.lower() in ROW_EXTENSIONS and not (path.suffix.lower() == ".arrow" and path.name.startswith("cache-"))
