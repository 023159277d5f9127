"""Which files are clips: by their ending, what FFmpeg decodes and what Pillow does; a WebP by whether it moves."""

from __future__ import annotations

from collections.abc import Callable

VIDEO_EXTENSIONS = (".mp4", ".mov", ".mkv", ".webm", ".avi", ".m4v", ".gif")  # decoded by FFmpeg
MOVING_EXTENSIONS = (".webp",)  # pictures that are clips if they move, else still images
PICTURE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".apng", ".bmp", ".tif", ".tiff", *MOVING_EXTENSIONS)  # decoded by Pillow
CLIP_EXTENSIONS = (*VIDEO_EXTENSIONS, *MOVING_EXTENSIONS)  # clips where still images are not asked for
HEAD = 21  # bytes that tell whether a WebP moves


def is_video(ending: str, head: Callable[[], bytes | None]) -> bool:
    """Whether a file of this ending, in lower case, is a video; of a WebP `head` reads the first `HEAD` bytes.

    One that cannot be read, None, counts as a video: decoding will say what is wrong with it.
    """
    return ending in VIDEO_EXTENSIONS or (ending in MOVING_EXTENSIONS and _moves(head()))


def is_clip(ending: str, images: bool, head: Callable[[], bytes | None]) -> bool:
    """Whether a file is taken for training: a video is, a still image is where `images` are asked for."""
    return (images and ending in PICTURE_EXTENSIONS) or is_video(ending, head)


def _moves(head: bytes | None) -> bool:
    """Whether a WebP is an animation: the flag in its extended header (WebP container specification)."""
    return head is None or (head[12:16] == b"VP8X" and bool(head[20:] and head[20] & 2))
