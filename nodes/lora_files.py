"""Station 5, Use: LoRA files in other programs' names."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io, ui

from ..trainer.adapters.names import LABELS
from ..trainer.errors import fail
from ..trainer.job import OutputSettings
from ..trainer.models import FAMILIES
from ..trainer.packages import require
from . import schema
from .host import models
from .sample import CATEGORY

TOLD = "told from the file"


class ConvertLoRA(io.ComfyNode):
    """Writes a LoRA file in another program's names."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """A LoRA of ComfyUI's list, whose names it is to have, and where it goes."""
        found = models.lora_names()
        return io.Schema(
            node_id="VideoTrainerConvertLoRA",
            display_name="Convert LoRA",
            category=CATEGORY,
            description="Turns LoRA files of ComfyUI, diffusers, PEFT, musubi-tuner and kohya's trainers into each other.",
            search_aliases=["lora key not loaded", "lora format", "diffusers to comfyui", "musubi", "peft"],
            inputs=[
                io.Combo.Input("lora", found or [""], display_name="LoRA", tooltip="The file to convert, in any of these programs' names."),
                io.Combo.Input("to", list(LABELS), display_name="Convert to", default="comfyui", tooltip="Whose names it is to have."),
                io.String.Input(
                    "name", display_name="Name", optional=True, default="",
                    tooltip="Name of the new file in output/loras; empty makes it of the old one's and the program's.",
                ),
                io.Combo.Input(
                    "family", [TOLD, *FAMILIES], display_name="Family", optional=True, default=TOLD, advanced=True,
                    tooltip="The model family that the LoRA belongs to; needed only where the layers of two are alike.",
                ),
            ],
            outputs=[io.String.Output("file", "file", tooltip="The new file's full path.")],
            is_output_node=True,
        )  # fmt: skip

    @classmethod
    def validate_inputs(cls, name: str | None = None) -> bool | str:
        """Marks the node when the name cannot be that of a file."""
        return schema.refusal(OutputSettings, {"name": name or None}) or True

    @classmethod
    def fingerprint_inputs(cls, lora: str = "", **_: Any) -> Any:
        """Changes with the file."""
        stat = models.lora_file(lora).stat() if lora else None
        return stat and (stat.st_size, stat.st_mtime_ns)

    @classmethod
    def execute(cls, lora: str, to: Any, name: str = "", family: str = TOLD) -> io.NodeOutput:
        """Converts; raises UserError for a file that is no plain LoRA, or of no family or of several."""
        require()
        from ..trainer.adapters.converting import convert

        if not lora:
            raise fail("LoRA", "none is chosen.", "Put LoRA files into models/loras.")
        if name:  # checked here too, as one that is linked is not known before
            schema.build(OutputSettings, {"name": name})
        source = models.lora_file(lora)
        output = models.output_file("loras", f"{name or f'{source.stem}-{to}'}.safetensors")
        written = convert(source, to, output, "" if family == TOLD else family)
        return io.NodeOutput(str(output), ui=ui.PreviewText(str(written)))
