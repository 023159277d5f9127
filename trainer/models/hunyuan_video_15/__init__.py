"""HunyuanVideo-1.5: text-to-video and image-to-video."""

from .family import HunyuanVideo15 as Family

__all__ = ["Family"]
