"""FramePack: image to video of any length, section by section."""

from .family import FramePack as Family

__all__ = ["Family"]
