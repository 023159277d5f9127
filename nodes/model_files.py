"""Station 1, Model: the model that is trained, out of the single files that ComfyUI's own loaders list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from comfy_api.latest import io

from ..trainer.errors import fail
from ..trainer.job import ModelSettings
from ..trainer.models import variant_names
from ..trainer.packages import require
from . import schema
from .host import models
from .model import CATEGORY
from .sockets import ModelReference, ModelSocket
from .validation import verdict

NONE, AUTOMATIC = "none", "automatic"
MODELS = ("diffusion_models", "checkpoints")  # ComfyUI's folders that hold diffusion models
SLOTS = {  # input -> ComfyUI's folders, whether it is folded away, what it says beside the setting's own text
    "transformer": (MODELS, False, "Its family and variant are recognised from what is in it."),
    "transformer_low": (MODELS, False, "Models in one file have none."),
    "vae": (("vae",), False, ""),
    "text_encoder_1": (("text_encoders",), False, "A text encoder's file."),
    "text_encoder_2": (("text_encoders",), False, "A second text encoder's file, for models that have one; their order does not matter."),
    "text_encoder_3": (("text_encoders",), True, "A third text encoder's file, for models that have one."),
    "text_encoder_4": (("text_encoders",), True, "A fourth text encoder's file, for models that have one."),
    "image_encoder": (("clip_vision",), False, "Other models have none."),
}
CHOICES = ("expert", "sampling_order")  # settings that are not files
TEXTS = [name for name in SLOTS if name.startswith("text_encoder")]


class LoadModelFiles(io.ComfyNode):
    """Names the files of the model to train; nothing but their headers is read until a node needs it."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """A list of files for each part, and the variant for files that do not tell it."""
        about = ModelSettings.model_fields["variant"]
        return io.Schema(
            node_id="VideoTrainerLoadModelFiles",
            display_name="Load Model Files for Training",
            category=CATEGORY,
            description="Names the video model to train by the files that ComfyUI's own loaders take: bf16, fp16, fp8, fp8_scaled, GGUF.",
            search_aliases=["unet", "diffusion model", "single file", "safetensors", "fp8", "gguf", "checkpoint for training"],
            inputs=[
                *(_combo(name, *slot) for name, slot in SLOTS.items()),
                io.Combo.Input(
                    "variant", [AUTOMATIC, *variant_names()], display_name=about.title, default=AUTOMATIC, optional=True, advanced=True,
                    tooltip=about.description,
                ),
                *schema.inputs(ModelSettings, only=CHOICES),
            ],
            outputs=[ModelSocket.Output("video_model", "video model", tooltip="The model, for Train Video Model and Sample Video.")],
        )  # fmt: skip

    @classmethod
    def validate_inputs(cls, **chosen: str | None) -> bool | str:
        """Marks the node when a file does not belong where it is chosen, is damaged or missing, before anything runs."""
        return True if None in chosen.values() else verdict(_checked, chosen)  # linked: known only when it runs

    @classmethod
    def fingerprint_inputs(cls, **chosen: Any) -> Any:
        """Changes with the files."""
        stats = [(file, Path(file).stat()) for file in _settings(chosen).files]
        return [(file, stat.st_size, stat.st_mtime_ns) for file, stat in stats]

    @classmethod
    def execute(cls, **chosen: Any) -> io.NodeOutput:
        """Checks that the files make a model of a known family."""
        require()
        return io.NodeOutput(ModelReference(_checked(chosen)))


def _combo(name: str, folders: tuple[str, ...], folded: bool, more: str) -> io.Input:
    field = ModelSettings.model_fields.get(name)
    label, text = (str(field.title), f"{field.description} {more}".strip()) if field else (f"Text encoder {name[-1]}", more)
    found, needed = models.file_names(*folders), name == "transformer"
    return io.Combo.Input(
        name, found or [""] if needed else [NONE, *found], display_name=label, optional=not needed, advanced=folded or None,
        default=(found or [""])[0] if needed else NONE, tooltip=text,
    )  # fmt: skip


def _settings(chosen: dict[str, str]) -> ModelSettings:
    """The settings with the full paths of the files chosen; raises UserError for one that is no longer there."""

    def path(name: str) -> str:
        choice = chosen.get(name, NONE)
        if choice in ("", NONE):
            return ""
        file = models.find_file(choice, *SLOTS[name][0])
        if file is None:
            raise fail(name, f"'{choice}' is not in ComfyUI's models/{SLOTS[name][0][0]}.", "Press R to refresh the list.")
        return str(file)

    variant = chosen.get("variant", AUTOMATIC)
    single = {name: path(name) for name in SLOTS if name not in TEXTS}
    texts = [file for name in TEXTS if (file := path(name))]
    more = {"text_encoders": texts, "tokenizers": str(models.comfy_folder()), "variant": "" if variant == AUTOMATIC else variant}
    return schema.build(ModelSettings, {**chosen, **single, **more})


def _checked(chosen: dict[str, str]) -> ModelSettings:
    from ..trainer.models import open_model
    from ..trainer.source import find_model

    settings = find_model(_settings(chosen), (), None)
    open_model(settings)
    return settings
