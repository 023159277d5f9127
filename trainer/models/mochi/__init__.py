"""Mochi 1: text-to-video."""

from .family import Mochi as Family

__all__ = ["Family"]
