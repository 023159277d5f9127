"""LTX-Video, text- and image-to-video."""

from .family import LTXVideo as Family

__all__ = ["Family"]
