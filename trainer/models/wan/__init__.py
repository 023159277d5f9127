"""Wan 2.1 text-to-video."""

from .family import Wan as Family

__all__ = ["Family"]
