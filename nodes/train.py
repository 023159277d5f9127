"""Station 4, Train: runs a job made of what is linked, and hands its results to our nodes and to core's."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import InputImpl, io
from comfy_execution.graph_utils import ExecutionBlocker
from pydantic import ValidationError

from ..trainer.job import (
    AdapterSettings,
    CaptionSettings,
    ComputeSettings,
    DatasetSettings,
    MemorySettings,
    ObjectiveSettings,
    OptimizerSettings,
    OutputSettings,
    SampleSettings,
    ScheduleSettings,
    TrainingJob,
)
from ..trainer.packages import require
from . import schema
from .host import folders, models, running
from .host.listener import RunListener, stopped_runs
from .sockets import AdapterSocket, DatasetSocket, LoRASocket, ModelReference, ModelSocket, OptimizerSocket, SamplesSocket, TrainedLoRA

CATEGORY = "Video Trainer/4 Train"
PREFIX = {"captions": "caption_"}  # of ids that would not say what they set
PARTS = {
    "output": OutputSettings,
    "schedule": ScheduleSettings,
    "captions": CaptionSettings,
    "compute": ComputeSettings,
    "memory": MemorySettings,
    "objective": ObjectiveSettings,
}
ONLY = {"captions": ("dropout", "prefix")}  # the other settings of captions are those of Caption Edit
LATER = {
    "schedule": ("video_batch_size_multiplier",),
    "memory": ("vae_tiling", "vae_slicing", "keep_quantized"),
}  # widgets of saved graphs keep their order
FOLD = ("keep", "dropout", "gradient_checkpointing", "timesteps", "shift")


class TrainVideoModel(io.ComfyNode):
    """Trains a LoRA of a video model on a dataset."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """Two required sockets, three optional ones, and the settings that no other node holds."""
        widgets = [
            item
            for name, part in PARTS.items()
            for item in schema.inputs(part, only=ONLY.get(name, ()), skip=LATER.get(name, ()), fold=FOLD, prefix=PREFIX.get(name, ""))
        ]
        widgets += [item for name, fields in LATER.items() for item in schema.inputs(PARTS[name], only=fields)]
        return io.Schema(
            node_id="VideoTrainerTrain",
            display_name="Train Video Model",
            category=CATEGORY,
            description="Trains a LoRA of a video model. Cancel keeps all progress: running again goes on from there.",
            search_aliases=["train lora", "finetune", "video lora", "training"],
            inputs=[
                ModelSocket.Input("model", "video model", tooltip="The model to train."),
                DatasetSocket.Input("dataset", "dataset", tooltip="The clips to train on."),
                AdapterSocket.Input("adapter", "adapter", optional=True, tooltip="Video LoRA Settings; unlinked uses defaults."),
                OptimizerSocket.Input("optimizer", "optimizer", optional=True, tooltip="Training Optimizer; unlinked uses defaults."),
                SamplesSocket.Input("samples", "samples", optional=True, tooltip="Sample Prompts; unlinked draws captions of two clips."),
                *widgets,
            ],
            outputs=[
                LoRASocket.Output("trained", "trained LoRA", tooltip="The trained LoRA, for Sample Video."),
                io.LoraModel.Output("lora_model", "LORA_MODEL", tooltip="The same LoRA for core's Load LoRA Model."),
                io.LossMap.Output("loss_map", "LOSS_MAP", tooltip="The loss of every step, for core's Plot Loss Graph."),
                io.Video.Output("last_sample", "last sample", tooltip="The newest sample video; nothing if none was drawn."),
                io.String.Output("run_folder", "run folder", tooltip="The run's folder: settings, log, checkpoints, sample videos."),
            ],
            hidden=[io.Hidden.prompt, io.Hidden.extra_pnginfo],
            is_output_node=True,
        )

    @classmethod
    def validate_inputs(cls, name: str | None = None) -> bool | str:
        """Marks the node when the run's name cannot be that of a file, or would leave the output folder."""
        if name is None:  # linked: known only when it runs
            return True
        try:
            OutputSettings(name=name)
        except ValidationError as error:
            return f"Name: {error.errors()[0]['msg']}."
        return True

    @classmethod
    def fingerprint_inputs(cls, if_exists: str = "", **_: Any) -> Any:
        """A run that was stopped is taken up again; "start new" trains each time."""
        return float("nan") if if_exists == "start new" else stopped_runs()

    @classmethod
    def execute(
        cls,
        model: ModelReference,
        dataset: DatasetSettings,
        adapter: AdapterSettings | None = None,
        optimizer: OptimizerSettings | None = None,
        samples: SampleSettings | None = None,
        **values: Any,
    ) -> io.NodeOutput:
        """Trains; raises UserError listing all that is wrong with the job."""
        require()
        from ..trainer.run import run

        parts = {name: schema.values(part, values, PREFIX.get(name, "")) for name, part in PARTS.items()}
        linked = {"adapter": adapter, "optimizer": optimizer, "samples": samples}
        given = {name: part for name, part in linked.items() if part is not None}
        job = TrainingJob.parse({"model": model.settings, "dataset": dataset, **parts, **given})
        job = job.model_copy(update={"compute": running.compute_settings(job.compute)})
        listener = RunListener(cls.hidden.prompt, cls.hidden.extra_pnginfo)
        with running.computing(listener):
            result = run(job, folders.places(), listener)
        video = InputImpl.VideoFromFile(str(result.samples[-1])) if result.samples else ExecutionBlocker(None)
        return io.NodeOutput(
            TrainedLoRA(model, result.loras, result.run_id),
            models.load_lora(result.lora),
            {"loss": result.losses},
            video,
            str(result.folder),
            ui={"video_trainer_run": [result.run_id]},
        )
