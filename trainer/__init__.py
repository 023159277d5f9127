"""Trains video diffusion models; never imports ComfyUI."""

__version__ = "0.1.0"
