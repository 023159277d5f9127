"""Wan 2.1 and 2.2: text-to-video, image-to-video, first and last frame."""

from .family import Wan as Family

__all__ = ["Family"]
