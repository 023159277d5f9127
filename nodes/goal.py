"""Station 3, Method: what is to be taught, and the settings to begin with."""

from __future__ import annotations

from typing import Any, get_args

from comfy_api.latest import io, ui

from ..trainer.job import AdapterSettings, ObjectiveSettings, OptimizerSettings
from ..trainer.packages import require
from ..trainer.presets import GOALS, TABLE, memory_here, preset
from .host import folders, running
from .method import CATEGORY
from .sockets import AdapterSocket, ModelReference, ModelSocket, OptimizerSocket

AUTO = "auto"
TIMESTEPS = list(get_args(ObjectiveSettings.model_fields["timesteps"].annotation))


class TrainingGoal(io.ComfyNode):
    """Settings to begin with, for a goal, a model and a card; each is an output of its own and shown as text."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The model, the goal and the card; outputs for the inputs of Train Video Model and Frame Buckets."""
        return io.Schema(
            node_id="VideoTrainerGoal",
            display_name="Training Goal",
            category=CATEGORY,
            description="Settings to begin with for what you teach: rank, learning rate, steps, batch, timesteps, shift and clip sizes. "
            "Link the outputs that you want; what is not linked stays as it is set.",
            search_aliases=["preset", "character", "subject", "style", "motion", "recommended settings", "vram", "defaults"],
            inputs=[
                ModelSocket.Input("model", "video model", tooltip="The model to train."),
                io.Combo.Input(
                    "goal", list(GOALS), display_name="Goal", default="character",
                    tooltip="character: someone or something, its look. style: how all of a picture looks. motion: what happens; clips are "
                    "twice as long, for half the batch.",
                ),
                io.Combo.Input(
                    "memory", [AUTO, *(f"{gb} GB" for gb in TABLE)], display_name="Memory", default=AUTO,
                    tooltip="Memory of the card that sizes and batch are for. auto: the card here; 24 GB without one.",
                ),
            ],
            outputs=[
                AdapterSocket.Output("adapter", "adapter", tooltip="The rank, for Train Video Model."),
                OptimizerSocket.Output("optimizer", "optimizer", tooltip="The learning rate, for Train Video Model."),
                io.Int.Output("steps", "steps", tooltip="For Steps of Train Video Model."),
                io.Int.Output("batch_size", "batch size", tooltip="For Batch size of Train Video Model."),
                io.Combo.Output("timesteps", "timesteps", options=TIMESTEPS, tooltip="For Timesteps of Train Video Model."),
                io.Float.Output("shift", "shift", tooltip="For Shift of Train Video Model; 0 is the model's own."),
                io.String.Output("buckets", "buckets", tooltip="For Sizes of Frame Buckets, one size per line."),
                io.String.Output("preset", "preset", tooltip="All that is set, as text."),
            ],
            is_output_node=True,
        )  # fmt: skip

    @classmethod
    def execute(cls, model: ModelReference, goal: Any, memory: str) -> io.NodeOutput:
        """Reads the model's configuration alone; raises UserError if it cannot be found."""
        require()
        from ..trainer.experts import trained_experts
        from ..trainer.models import open_model
        from ..trainer.source import find_model

        places = folders.places()
        spec = open_model(find_model(model.settings, places.models, places.downloads)).spec
        held = memory_here(running.compute_settings()) if memory == AUTO else float(memory.removesuffix(" GB"))
        made = preset(spec, goal, held, len(trained_experts(spec, model.settings.expert)))
        text = "\n".join(made.lines())
        return io.NodeOutput(
            AdapterSettings(rank=made.rank),
            OptimizerSettings(learning_rate=made.learning_rate),
            made.steps,
            made.batch_size,
            made.timesteps,
            made.shift,
            made.buckets,
            text,
            ui=ui.PreviewText(text),
        )
