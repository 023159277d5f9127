"""Station 3, Method: what is trained, how, and what is drawn meanwhile. All of it is optional."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comfy_api.latest import io

from ..trainer.job import AdapterSettings, OptimizerSettings, SampleSettings
from . import schema
from .host import folders, models
from .prompt_lines import SYNTAX, parse_prompts
from .sockets import AdapterSocket, OptimizerSocket, SamplesSocket
from .validation import verdict

if TYPE_CHECKING:
    from torch import Tensor

CATEGORY = "Video Trainer/3 Method"
NEW = "none"


class LoRASettings(io.ComfyNode):
    """The LoRA that is trained."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The fields of `AdapterSettings`, the file to continue from chosen among ComfyUI's."""
        about = AdapterSettings.model_fields["continue_from"]
        return io.Schema(
            node_id="VideoTrainerLoRASettings",
            display_name="Video LoRA Settings",
            category=CATEGORY,
            description="Size and place of the LoRA that is trained. Without this node the family's defaults are used.",
            search_aliases=["rank", "alpha", "network dim", "adapter"],
            inputs=[
                io.Combo.Input(
                    "continue_from", [NEW, *models.lora_names()], display_name=about.title, optional=True, default=NEW, advanced=True,
                    tooltip="A LoRA file to go on training; none starts anew.",
                ),
                *schema.inputs(AdapterSettings, skip=("continue_from",)),
            ],
            outputs=[AdapterSocket.Output("adapter", "adapter", tooltip="For Train Video Model.")],
        )  # fmt: skip

    @classmethod
    def execute(cls, continue_from: str = NEW, **values: Any) -> io.NodeOutput:
        """Builds the settings."""
        file = "" if continue_from == NEW else str(models.lora_file(continue_from))
        return io.NodeOutput(schema.build(AdapterSettings, {**values, "continue_from": file}))


class TrainingOptimizer(io.ComfyNode):
    """The optimizer and its schedule."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The fields of `OptimizerSettings`."""
        return io.Schema(
            node_id="VideoTrainerOptimizer",
            display_name="Training Optimizer",
            category=CATEGORY,
            description="Learning rate and schedule. Without this node the defaults shown here are used.",
            search_aliases=["learning rate", "adamw", "prodigy", "lion", "muon", "8-bit", "scheduler", "warmup"],
            inputs=schema.inputs(OptimizerSettings, only=("name", *(field for field in OptimizerSettings.model_fields if field != "name"))),
            outputs=[OptimizerSocket.Output("optimizer", "optimizer", tooltip="For Train Video Model.")],
        )

    @classmethod
    def execute(cls, **values: Any) -> io.NodeOutput:
        """Builds the settings."""
        return io.NodeOutput(schema.build(OptimizerSettings, values))


class SamplePrompts(io.ComfyNode):
    """Sample videos drawn while training."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The prompts one per line, then the fields of `SampleSettings`."""
        return io.Schema(
            node_id="VideoTrainerSamplePrompts",
            display_name="Sample Prompts",
            category=CATEGORY,
            description="Sample videos drawn before the first step and while training. Without it, captions of two clips are drawn.",
            search_aliases=["validation prompts", "preview", "sample videos"],
            inputs=[
                io.String.Input(
                    "prompts", display_name="Prompts", multiline=True, default="", dynamic_prompts=False,
                    placeholder=SYNTAX,
                    tooltip=f"One sample per line: {SYNTAX}. All but the prompt may be left out. Empty: captions of two clips.",
                ),
                *schema.inputs(SampleSettings, skip=("prompts",)),
                io.Image.Input("image", "first frame", optional=True, tooltip="First frame of the samples, for models that take one."),
                io.Image.Input("last_image", "last frame", optional=True, tooltip="Last frame of the samples, for models that take one."),
            ],
            outputs=[SamplesSocket.Output("samples", "samples", tooltip="For Train Video Model.")],
        )  # fmt: skip

    @classmethod
    def validate_inputs(cls, prompts: str | None = "") -> bool | str:
        """Marks the node when a prompt cannot be read."""
        return verdict(parse_prompts, prompts or "")  # nothing while linked: known only when it runs

    @classmethod
    def execute(cls, prompts: str, image: Tensor | None = None, last_image: Tensor | None = None, **values: Any) -> io.NodeOutput:
        """Builds the settings; images are kept as files in the temp folder."""
        first, last = ("" if picture is None else str(folders.save_temp_image(picture)) for picture in (image, last_image))
        shown = [prompt.model_copy(update={"image": first, "last_image": last}) for prompt in parse_prompts(prompts)]
        return io.NodeOutput(schema.build(SampleSettings, {**values, "prompts": shown}))
