"""Video Trainer: trains LoRAs of video diffusion models on the ComfyUI canvas.

The body runs only when ComfyUI (or anyone) imports this folder as a package; test collectors that execute the file by itself,
whatever the folder is called, find nothing here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from comfy_api.latest import ComfyExtension

if __package__:
    WEB_DIRECTORY = "./web"

    async def comfy_entrypoint() -> ComfyExtension:
        """What ComfyUI calls to get the nodes."""
        from .nodes import extension

        return extension()
