"""Station 3, Method: settings taken over from another trainer's files."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ..trainer.errors import fail
from ..trainer.importers import Imported, import_config, remaining, table
from ..trainer.job import TrainingJob
from ..trainer.job_files import job_state
from .host import folders
from .method import CATEGORY
from .sockets import AdapterSocket, DatasetSocket, OptimizerSocket, SamplesSocket
from .sources import placed
from .validation import verdict

LINKED = ("dataset", "adapter", "optimizer", "samples")  # parts of a job that have a socket


class ImportConfig(io.ComfyNode):
    """Another trainer's configuration, as far as our sockets hold it."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The files, and an output for each part of a job that has a socket."""
        return io.Schema(
            node_id="VideoTrainerImportConfig",
            display_name="Import Config",
            category=CATEGORY,
            description="Reads a configuration of diffusion-pipe, musubi-tuner, OneTrainer, finetrainers or FastVideo.",
            search_aliases=["toml", "onetrainer", "musubi", "diffusion-pipe", "finetrainers", "fastvideo", "convert settings"],
            inputs=[
                io.String.Input(
                    "files", display_name="Files", multiline=True, default="", dynamic_prompts=False,
                    tooltip="The other trainer's TOML, JSON, CSV or shell script; several of one run on a line each. "
                    "Full paths, or relative to ComfyUI's input folder.",
                ),
            ],
            outputs=[
                DatasetSocket.Output("dataset", "dataset", tooltip="Clips, sizes and windows."),
                AdapterSocket.Output("adapter", "adapter", tooltip="The LoRA's settings, for Train Video Model."),
                OptimizerSocket.Output("optimizer", "optimizer", tooltip="The optimizer's settings, for Train Video Model."),
                SamplesSocket.Output("samples", "samples", tooltip="Sample prompts, for Train Video Model."),
                io.String.Output("table", "table", tooltip="What became of each setting, and what is left to set by hand."),
            ],
        )  # fmt: skip

    @classmethod
    def validate_inputs(cls, files: str | None = "") -> bool | str:
        """Marks the node when a file cannot be read or its settings are not accepted."""
        return True if files is None else verdict(_read, files)

    @classmethod
    def fingerprint_inputs(cls, files: str = "") -> Any:
        """Changes with what the files say, and with every file that their job points to; linked text is known only when it runs."""
        if not files:
            return float("nan")
        imported, job = _read(files)
        return repr((imported, job_state(job)))

    @classmethod
    def execute(cls, files: str) -> io.NodeOutput:
        """Imports the files; relative places lie in ComfyUI's input folder."""
        imported, job = _read(files)
        left = remaining(imported, LINKED)
        told = f"{table(imported)}\n\nset by hand on Load Model for Training and Train Video Model\n{left}" if left else table(imported)
        return io.NodeOutput(job.dataset, job.adapter, job.optimizer, job.samples, told)


def _read(files: str) -> tuple[Imported, TrainingJob]:
    """The import and its job as it is trained; raises UserError for files that cannot be read or values that are not accepted."""
    paths = [folders.input_path(line) for line in files.splitlines() if line.strip()]
    if not paths:
        raise fail("files", "no file is given.", "Write the path of the other trainer's configuration.")
    imported = import_config(paths)
    return imported, _placed(TrainingJob.parse(imported.job))


def _placed(job: TrainingJob) -> TrainingJob:
    """The job with places inside ComfyUI's input folder made absolute: of clips, of the LoRA to go on from, of sample prompts' images."""
    sources = [placed(source) for source in job.dataset.sources]
    prompts = [prompt.model_copy(update={"image": _file(prompt.image)}) for prompt in job.samples.prompts]
    return job.model_copy(
        update={
            "dataset": job.dataset.model_copy(update={"sources": sources}),
            "adapter": job.adapter.model_copy(update={"continue_from": _file(job.adapter.continue_from)}),
            "samples": job.samples.model_copy(update={"prompts": prompts}),
        }
    )


def _file(text: str) -> str:
    return str(folders.input_path(text)) if text.strip() else text
