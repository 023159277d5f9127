"""Station 4, Train: what a training would take of this machine, without running it."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io, ui

from ..trainer.job import (
    AdapterSettings,
    ComputeSettings,
    DatasetSettings,
    MemorySettings,
    OptimizerSettings,
    ScheduleSettings,
    TrainingJob,
)
from ..trainer.packages import require
from . import schema
from .host import folders, running
from .host.listener import NodeListener
from .sockets import AdapterSocket, DatasetSocket, ModelReference, ModelSocket, OptimizerSocket
from .train import CATEGORY

ADVANCED = (
    (ScheduleSettings, ("accumulation",)),
    (MemorySettings, ("weights", "layer_offload_fraction", "gradient_checkpointing", "vae_tiling")),
    (ComputeSettings, ("dtype", "compile", "fp8_products")),
)


class PlanTraining(io.ComfyNode):
    """Predicts memory and time of a training, and shows what would be chosen for the card."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The sockets of Train that change what a step takes, and the settings that go with them."""
        return io.Schema(
            node_id="VideoTrainerPlan",
            display_name="Plan Training",
            category=CATEGORY,
            description="Predicts memory and time of a training and shows how the model would be held and computed. Loads no weights.",
            search_aliases=["vram", "memory estimate", "training time", "fit into", "oom", "predict"],
            inputs=[
                ModelSocket.Input("model", "video model", tooltip="The model to train."),
                DatasetSocket.Input("dataset", "dataset", tooltip="The clips to train on: their buckets count, no clip is read."),
                AdapterSocket.Input("adapter", "adapter", optional=True, tooltip="Video LoRA Settings; unlinked uses defaults."),
                OptimizerSocket.Input("optimizer", "optimizer", optional=True, tooltip="Training Optimizer; unlinked uses defaults."),
                *schema.inputs(MemorySettings, only=("fit_into",)),
                *schema.inputs(ScheduleSettings, only=("steps", "batch_size")),
                io.String.Input(
                    "card", display_name="Card", default="", optional=True, advanced=True,
                    tooltip="Plans for this card, such as 4090, H100 or '4060 Ti 8 GB'; empty: the one here.",
                ),
                *(item for part, fields in ADVANCED for item in schema.inputs(part, only=fields, fold=fields)),
            ],
            outputs=[io.String.Output("plan", "plan", tooltip="The plan as text.")],
            is_output_node=True,
        )  # fmt: skip

    @classmethod
    def fingerprint_inputs(cls, **_: Any) -> Any:
        """Never the same: what other programs leave of the card changes."""
        return float("nan")

    @classmethod
    def execute(
        cls, model: ModelReference, dataset: DatasetSettings, adapter: AdapterSettings | None = None,
        optimizer: OptimizerSettings | None = None, card: str = "", **values: Any,
    ) -> io.NodeOutput:  # fmt: skip
        """Plans; raises UserError with the cheapest changes if nothing fits."""
        require()
        from ..trainer.events import EventLog
        from ..trainer.memory.command import plan_of_job

        linked = {name: part for name, part in (("adapter", adapter), ("optimizer", optimizer)) if part is not None}
        kinds = {"memory": MemorySettings, "schedule": ScheduleSettings, "compute": ComputeSettings}
        parts = {name: schema.build(kind, values) for name, kind in kinds.items()}
        job = TrainingJob.parse({"model": model.settings, "dataset": dataset, **parts, **linked})
        with running.cancelling():
            text = plan_of_job(job, folders.places(), card.strip(), say=EventLog(NodeListener()).saying("plan")).table()
        return io.NodeOutput(text, ui=ui.PreviewText(text))
