"""The socket types between our nodes: settings and references, never weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from comfy_api.latest import io

from ..trainer.job import ModelSettings

# What travels: ModelReference, DatasetSettings, AdapterSettings, OptimizerSettings, SampleSettings, TrainedLoRA.
ModelSocket = io.Custom("VIDEO_TRAINER_MODEL")
DatasetSocket = io.Custom("VIDEO_TRAINER_DATASET")
AdapterSocket = io.Custom("VIDEO_TRAINER_ADAPTER")
OptimizerSocket = io.Custom("VIDEO_TRAINER_OPTIMIZER")
SamplesSocket = io.Custom("VIDEO_TRAINER_SAMPLES")
LoRASocket = io.Custom("VIDEO_TRAINER_LORA")


@dataclass(frozen=True)
class ModelReference:
    """A model to train or sample: its settings, whose folder or files were found."""

    settings: ModelSettings


@dataclass(frozen=True)
class TrainedLoRA:
    """A LoRA that a run exported: the model it belongs to, its files by expert and the run's id."""

    model: ModelReference
    files: dict[str, Path]
    run: str
