"""Exporting a run's LoRA into ComfyUI's loras folder, with the metadata that LoRA browsers read."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..job import MODEL_FILES
from ..runfolder import step_name
from .conventions import IMPLEMENTATIONS
from .file import save_lora
from .weights import LoraWeights, require_modules

if TYPE_CHECKING:
    from ..job import TrainingJob
    from ..models.base import ModelFamily
    from .lora import Lora


PATHS = (  # settings that hold paths
    "source", "folder", "file", "path", "videos", "captions", "caption_file", "encoder", "continue_from", "image", "last_image",
    "tokenizers", "text_encoders", *MODEL_FILES,
)  # fmt: skip


@dataclass(frozen=True)
class Exporter:
    """Writes a step's LoRA to `folder`/<name>/<name>-step-000500.safetensors, and where diffusers needs a copy, that with -diffusers."""

    folder: Path
    name: str
    job: TrainingJob
    family: ModelFamily
    base_hash: str = ""  # of the transformer's files, as data.content.component_identity gives it

    def file(self, step: int, expert: str = "") -> Path:
        """The file of a step, for models of several experts one for each."""
        return self.folder / self.name / f"{self.name}{f'-{expert}' if expert else ''}-{step_name(step)}.safetensors"

    def __call__(self, lora: Lora, step: int, expert: str = "") -> Path:
        """Exports, reads back and compares; raises UserError if the LoRA is not finite or the folder not writable."""
        file, weights = self.file(step, expert), lora.weights()
        require_modules(weights, self.family.layer_shapes, str(file))
        metadata = self.metadata(weights, step, expert)
        save_lora(weights, self.family, file, metadata)
        if self.family.spec.diffusers_copy:
            used = {"modelspec.implementation": IMPLEMENTATIONS["diffusers"]}
            save_lora(weights, self.family, file.with_stem(f"{file.stem}-diffusers"), metadata | used, "diffusers")
        return file

    def metadata(self, weights: LoraWeights, step: int, expert: str = "") -> dict[str, str]:
        """Safetensors metadata: modelspec 1.0.0 keys, kohya's ss_ keys, and the settings, which name no folder of this machine."""
        job, spec = self.job, self.family.spec
        return {
            "format": "pt",
            "modelspec.sai_model_spec": "1.0.0",
            "modelspec.architecture": self.family.architecture,
            "modelspec.implementation": IMPLEMENTATIONS["comfyui"],
            "modelspec.title": self.name,
            "modelspec.date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "modelspec.prediction_type": "flow",
            "modelspec.trigger_phrase": ", ".join(_triggers(job)),
            "ss_output_name": self.name,
            "ss_network_module": "networks.lora",
            "ss_network_dim": str(max(rank for rank, _ in weights.strengths)),
            "ss_network_alpha": str(max(alpha for _, alpha in weights.strengths)),
            "ss_base_model_version": "-".join(filter(None, (spec.family, spec.variant, expert))),
            "ss_sd_model_name": Path(self.family.files.name).name,
            "ss_steps": str(step),
            "ss_learning_rate": str(job.optimizer.learning_rate),
            "ss_seed": str(job.schedule.seed),
            **({"video_trainer.base_model_hash": self.base_hash} if self.base_hash else {}),
            "video_trainer.version": __version__,
            "video_trainer.job": json.dumps(_without_paths(job.model_dump(mode="json"))),
        }


def _triggers(job: TrainingJob) -> list[str]:
    """The job's trigger and those of its sources, each once."""
    edits = [job.captions, *(edit for source in job.dataset.clip_sources for edit in source.caption_edits)]
    return list(dict.fromkeys(edit.prefix for edit in edits if edit.prefix))


def _without_paths(value: Any) -> Any:
    """Settings with every path cut to its last name: LoRA files are published."""
    if isinstance(value, dict):
        return {name: _names(part) if name in PATHS else _without_paths(part) for name, part in value.items()}
    return [_without_paths(part) for part in value] if isinstance(value, list) else value


def _names(value: Any) -> Any:
    """The last names of a path, or of a list of paths."""
    if isinstance(value, list):
        return [_names(part) for part in value]
    return Path(value.replace("\\", "/")).name if isinstance(value, str) else _without_paths(value)
