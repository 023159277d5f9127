"""HiDream-I1: text-to-image, trained on single frames."""

from .family import HiDream as Family

__all__ = ["Family"]
