"""CogVideoX: text-to-video and image-to-video."""

from .family import CogVideoX as Family

__all__ = ["Family"]
