"""Station 4, Train: runs a job made of what is linked, and hands its results to our nodes and to core's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comfy_api.latest import InputImpl, io
from comfy_execution.graph_utils import ExecutionBlocker

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

if TYPE_CHECKING:
    from ..trainer.run import RunResult

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
LATER = (  # widgets of saved graphs keep their order
    ("schedule", ("video_batch_size_multiplier",)),
    ("memory", ("vae_tiling", "vae_slicing")),
    ("schedule", ("switch_every",)),
    ("objective", ("guidance", "first_frame_probability", "history_noise")),
    ("memory", ("weights",)),
    ("objective", ("snr_gamma",)),
    ("memory", ("fit_into", "layer_offload_fraction")),
    ("compute", ("compile", "fp8_products", "attention", "sampling_attention")),
)
FOLD = ("keep", "if_exists", "dropout", "gradient_checkpointing", "timesteps", "shift")


class TrainVideoModel(io.ComfyNode):
    """Trains a LoRA of a video model on a dataset."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """Two required sockets, three optional ones, and the settings that no other node holds."""
        later = {field for _, fields in LATER for field in fields}
        widgets = [
            item
            for name, part in PARTS.items()
            for item in schema.inputs(part, only=ONLY.get(name, ()), skip=later, fold=FOLD, prefix=PREFIX.get(name, ""))
        ]
        widgets += [item for name, fields in LATER for item in schema.inputs(PARTS[name], only=fields)]
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
                io.LoraModel.Output(
                    "lora_model", "LORA_MODEL",
                    tooltip="The same LoRA for core's Load LoRA Model; of a model with two experts that of the one for high noise.",
                ),
                io.LossMap.Output("loss_map", "LOSS_MAP", tooltip="The loss of every step, for core's Plot Loss Graph."),
                io.Video.Output("last_sample", "last sample", tooltip="The newest sample video; nothing if none was drawn."),
                io.String.Output("run_folder", "run folder", tooltip="The run's folder: settings, log, checkpoints, sample videos."),
                io.LoraModel.Output(
                    "low_noise_lora_model", "low-noise LORA_MODEL", tooltip="The LoRA of the expert for low noise, of models with two."
                ),
            ],
            hidden=[io.Hidden.prompt, io.Hidden.extra_pnginfo],
            is_output_node=True,
        )  # fmt: skip

    @classmethod
    def validate_inputs(cls, name: str | None = None) -> bool | str:
        """Marks the node when the run's name cannot be that of a file or would leave the output folder."""
        return schema.refusal(OutputSettings, {"name": name}) or True

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
            _for_core(result, "", "high"),
            {"loss": result.losses},
            video,
            str(result.folder),
            _for_core(result, "low"),
            ui={"video_trainer_run": [result.run_id]},
        )


def _for_core(result: RunResult, *experts: str) -> Any:
    """The LoRA of the first of these experts that was trained, for core's loaders; else what stops the nodes behind it, with the reason."""
    loras = result.loras
    if result.lora_user:
        name = f"{result.lora.parent.name}/{result.lora.name}"
        return ExecutionBlocker(f"ComfyUI's own nodes have no model for this LoRA. Choose {name} in {result.lora_user}.")
    file = next((loras[expert] for expert in experts if expert in loras), None)
    if file is not None:
        return models.load_lora(file)
    other = (
        "this model has no experts for high and low noise" if "" in loras else f"only the expert for {next(iter(loras))} noise was trained"
    )
    return ExecutionBlocker(f"There is no LoRA here: {other}. Take the other LORA_MODEL output.")
