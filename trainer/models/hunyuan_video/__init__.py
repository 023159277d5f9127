"""HunyuanVideo text-to-video and image-to-video."""

from .family import HunyuanVideo as Family

__all__ = ["Family"]
