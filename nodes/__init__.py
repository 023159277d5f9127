"""The ComfyUI skin: V3 nodes that build parts of a job and call `trainer/`; one broken node never takes the others along."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from comfy_api.latest import ComfyExtension

NODES = (
    ("model", "DemoModel"),
    ("model", "LoadModel"),
    ("model_files", "LoadModelFiles"),
    ("sources", "DemoClips"),
    ("sources", "VideoFolderNode"),
    ("sources", "PairedFoldersNode"),
    ("sources", "VideoListNode"),
    ("sources", "MetadataTableNode"),
    ("sources", "CaptionJsonNode"),
    ("sources", "HubDatasetNode"),
    ("sources", "WebDatasetNode"),
    ("sources", "LoadParquet"),
    ("parquet", "SaveParquet"),
    ("dataset", "CombineDatasets"),
    ("dataset", "CaptionEditNode"),
    ("captioning", "CaptionClips"),
    ("captioning", "ClipsToImages"),
    ("dataset", "FrameBuckets"),
    ("dataset", "FrameSamplingNode"),
    ("dataset", "FramePackWindows"),
    ("preview", "DatasetPreview"),
    ("cache", "PruneCache"),
    ("config", "ImportConfig"),
    ("goal", "TrainingGoal"),
    ("method", "LoRASettings"),
    ("method", "TrainingOptimizer"),
    ("method", "SamplePrompts"),
    ("plan", "PlanTraining"),
    ("train", "TrainVideoModel"),
    ("sample", "SampleVideo"),
    ("sample", "EncodePrompt"),
    ("lora_files", "ConvertLoRA"),
)


def load_nodes() -> list[type[Any]]:
    """The node classes that can be imported; what cannot is logged with its traceback and, for a missing package, its cure."""
    loaded = []
    for module, name in NODES:
        try:
            loaded.append(getattr(import_module(f".{module}", __name__), name))
        except Exception as error:
            logging.exception("Video Trainer: the node %s is not available.%s", name, _cure(error))
    return loaded


def _cure(error: Exception) -> str:
    """How to get the package that an import failed for; empty when it failed for another reason."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    ours = __name__.rpartition(".")[0]
    return f' Run: "{sys.executable}" -m pip install {missing}' if missing and not missing.startswith(ours) else ""


def extension() -> ComfyExtension:
    """The extension handed to ComfyUI: its nodes and, once loaded, its routes."""
    from comfy_api.latest import ComfyExtension

    class VideoTrainer(ComfyExtension):
        async def on_load(self) -> None:
            from . import caption_route, run_route

            run_route.register()
            caption_route.register()

        async def get_node_list(self) -> list[type[Any]]:
            from .texts import with_checked_texts

            return [with_checked_texts(node) for node in load_nodes()]

    return VideoTrainer()
