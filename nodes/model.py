"""Station 1, Model: the model that is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from comfy_api.latest import io

from ..trainer.errors import fail
from ..trainer.job import ModelSettings
from ..trainer.packages import require
from . import schema
from .host import folders, models, running
from .sockets import ModelReference, ModelSocket
from .validation import verdict

CATEGORY = "Video Trainer/1 Model"
DEMO_MODEL = Path(__file__).parents[1] / "trainer" / "demo" / "model"
DEMO_NAME = "video_trainer_demo.safetensors"


class DemoModel(io.ComfyNode):
    """The small model that ships with the pack, for our nodes and for core's."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """Three outputs, each loaded only if something takes it."""
        return io.Schema(
            node_id="VideoTrainerDemoModel",
            display_name="Demo Video Model",
            category=CATEGORY,
            description="A small video model that ships with Video Trainer: train it in minutes, on a CPU too, without a download.",
            search_aliases=["example model", "tiny model"],
            outputs=[
                ModelSocket.Output("video_model", "video model", tooltip="The small model, for Train Video Model and Sample Video."),
                io.Model.Output("model", "MODEL", tooltip="The same model for ComfyUI's own nodes, such as Load LoRA Model and KSampler."),
                io.Vae.Output("vae", "VAE", tooltip="Its VAE for ComfyUI's own nodes, such as VAE Decode."),
            ],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def fingerprint_inputs(cls) -> Any:
        """Runs again when an output is linked that was not before, or the shipped model changed."""
        return running.linked_outputs(cls.hidden.unique_id), _folder_state(DEMO_MODEL)

    @classmethod
    def execute(cls) -> io.NodeOutput:
        """Writes the single files that core loads, if they are missing or older, and loads those that are taken."""
        require()
        reference = ModelReference(ModelSettings(source=str(DEMO_MODEL)), _checked(DEMO_MODEL))
        linked = running.linked_outputs(cls.hidden.unique_id)
        model = vae = None
        if {1, 2} & set(linked):
            transformer_file, vae_file = _core_files()
            model = models.load_diffusion_model(transformer_file) if 1 in linked else None
            vae = models.load_vae(vae_file) if 2 in linked else None
        return io.NodeOutput(reference, model, vae)


class LoadModel(io.ComfyNode):
    """Names the model to train; nothing is loaded until a node needs it."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """A list of found folders, and a text for any other folder or a hub id."""
        found = models.model_names()
        about = ModelSettings.model_fields["source"].description
        return io.Schema(
            node_id="VideoTrainerLoadModel",
            display_name="Load Model for Training",
            category=CATEGORY,
            description="Names the video model to train: a diffusers folder in models/diffusers, any other such folder, or a hub id.",
            search_aliases=["diffusers", "base model", "checkpoint for training"],
            inputs=[
                io.Combo.Input(
                    "source", found or [""], display_name="Model", default=found[0] if found else "",
                    tooltip="Diffusers folders found in ComfyUI's models/diffusers. Used when Folder or hub id is empty.",
                ),
                io.String.Input(
                    "path", display_name="Folder or hub id", default="",
                    tooltip=f"{about} What is written here is used instead of the list above.",
                ),
                *schema.inputs(ModelSettings, only=("expert", "sampling_order")),
            ],
            outputs=[ModelSocket.Output("video_model", "video model", tooltip="The model, for Train Video Model and Sample Video.")],
        )  # fmt: skip

    @classmethod
    def validate_inputs(cls, source: str | None = "", path: str | None = "") -> bool | str:
        """Marks the node when its model cannot be found, before anything runs; an allowed download is left to the run."""
        if path is None or source is None:  # linked: known only when it runs
            return True
        return (folders.downloads_allowed() and "/" in path) or verdict(_found, source, path)

    @classmethod
    def fingerprint_inputs(cls, source: str = "", path: str = "", **_: Any) -> Any:
        """Changes with the model's files."""
        return _folder_state(_found(source, path))

    @classmethod
    def execute(cls, source: str, path: str, **values: Any) -> io.NodeOutput:
        """Finds the folder and checks that it holds a model of a known family."""
        require()
        folder = _checked(_found(source, path, download=True))
        return io.NodeOutput(ModelReference(schema.build(ModelSettings, {**values, "source": str(folder)}), folder))


def _found(source: str, path: str, download: bool = False) -> Path:
    """The folder of the chosen model; raises UserError if there is none."""
    from ..trainer.source import find_model

    wanted = path.strip().strip("\"'") or source
    if not wanted:
        cure = "Choose one of the list, or write a folder or a hub id. The list has the folders in models/diffusers; R refreshes it."
        raise fail("model", "no model is chosen.", cure)
    places = folders.places()
    return find_model(wanted, places.models, places.downloads if download else None)


def _checked(folder: Path) -> Path:
    from ..trainer.models import open_model

    open_model(folder)
    return folder


def _folder_state(folder: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of every file below a folder."""
    stats = ((file, file.stat()) for file in sorted(folder.rglob("*")) if file.is_file())
    return [(file.relative_to(folder).as_posix(), stat.st_size, stat.st_mtime_ns) for file, stat in stats]


def _core_files() -> tuple[Path, Path]:
    """The demo model as the two files that core's loaders list, written again if the shipped model is newer."""
    from ..trainer.models import open_model

    targets = models.output_file("diffusion_models", DEMO_NAME), models.output_file("vae", DEMO_NAME)
    newest = max(time for _, _, time in _folder_state(DEMO_MODEL))
    if not all(target.is_file() and target.stat().st_mtime_ns >= newest for target in targets):
        open_model(DEMO_MODEL).write_comfy_files(*targets)
    return targets
