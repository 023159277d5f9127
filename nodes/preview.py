"""Station 2, Dataset: what the model will see of a dataset, before anything is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comfy_api.latest import io

from ..trainer.events import EventLog
from ..trainer.job import CaptionSettings, DatasetSettings, ScheduleSettings
from ..trainer.packages import require
from ..trainer.preview_settings import PreviewSettings
from . import previews, schema
from .host import folders, running
from .host.listener import NodeListener
from .sockets import DatasetSocket, ModelReference, ModelSocket
from .sources import CATEGORY

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from ..trainer.data.preview import Preview, ShownClip

TRIGGER = "caption_"  # as on the Train node


class DatasetPreview(io.ComfyNode):
    """Shows a contact sheet of a dataset, its buckets and its report; captions can be edited on it."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The fields of `PreviewSettings`, and those of Train that change what is seen."""
        return io.Schema(
            node_id="VideoTrainerDatasetPreview",
            display_name="Dataset Preview",
            category=CATEGORY,
            description="Shows what the model will see: frames after crop and retiming, captions as trained, and every clip left out.",
            search_aliases=["contact sheet", "inspect dataset", "dataset report", "bucket chart", "edit captions", "view clips"],
            inputs=[
                ModelSocket.Input("model", "video model", tooltip="The model to train: its rules for sizes are used, no weights are read."),
                DatasetSocket.Input("dataset", "dataset", tooltip="The clips to look at, as they go into Train Video Model."),
                *schema.inputs(PreviewSettings),
                *schema.inputs(CaptionSettings, only=("prefix",), fold=("prefix",), prefix=TRIGGER),
                *schema.inputs(ScheduleSettings, only=("seed",), fold=("seed",)),
            ],
            outputs=[
                io.Image.Output("sheet", "contact sheet", tooltip="The contact sheet as one picture, for Save Image."),
                io.String.Output("report", "report", tooltip="The report on every clip, as text."),
            ],
            is_output_node=True,
        )  # fmt: skip

    @classmethod
    def execute(cls, model: ModelReference, dataset: DatasetSettings, **values: Any) -> io.NodeOutput:
        """Plans all clips and decodes those shown; raises UserError if there is none."""
        require()
        from ..trainer.data.contact_sheet import contact_sheet
        from ..trainer.data.preview import preview_dataset
        from ..trainer.models import open_model

        captions = schema.build(CaptionSettings, values, TRIGGER)
        seed, places = schema.build(ScheduleSettings, values).seed, folders.places()
        places.check()
        family = open_model(model.settings)
        log, shown = EventLog(NodeListener()), schema.build(PreviewSettings, values)
        with running.cancelling():
            found = preview_dataset(
                dataset, captions, family, places.cache, log, shown, seed=seed, may_download=places.downloads is not None
            )  # fmt: skip
        preview = _kept(found, captions, seed)
        sheet = _image(contact_sheet(found.clips))
        return io.NodeOutput(sheet, "\n".join(found.report.lines()), ui={"video_trainer_preview": [preview]})


def _kept(found: Preview, captions: CaptionSettings, seed: int) -> dict[str, Any]:
    """What the browser shows, remembered for edits."""
    clips = [previews.Editable(clip.record, captions, seed, _card(clip)) for clip in found.clips]
    shown: dict[str, Any] = {**found.report.overview(), "first": found.first, "clips": [clip.shown for clip in clips]}
    previews.keep(shown, [clip for clip in clips if clip.shown["locked"] == ""])
    return shown


def _card(clip: ShownClip) -> dict[str, Any]:
    """A clip for the browser: its strip of frames is a file in the temp folder."""
    from ..trainer.data.contact_sheet import facts, strip

    count, (height, width) = len(clip.frames), clip.frames.shape[1:3]
    return {
        "id": "", "name": clip.record.name, "strip": folders.save_temp_pixels(strip(clip.frames)).name,
        "frames": count, "places": [place + 1 for place in clip.places], "height": height, "width": width,
        "facts": facts(clip), "about": str(clip.report), "text": " ".join(clip.record.captions[:1]) if clip.record.origin == "file" else "",
        "texts": list(clip.texts), "locked": _locked(clip),
    }  # fmt: skip


def _locked(clip: ShownClip) -> str:
    """Why the caption cannot be edited here; empty if it can."""
    sidecar = clip.record.sidecar
    if sidecar is None:
        return "This caption has no file of its own: edit it in the list, table or archive that it comes from."
    if len(clip.record.captions) > 1:
        return "This clip has several captions: edit their file."
    if not folders.is_ours(sidecar):
        return "Captions can be edited here for clips inside ComfyUI's input or output folder."
    return ""


def _image(pixels: np.ndarray) -> Tensor:
    """A picture [H, W, 3] uint8 as IMAGE [1, H, W, 3]."""
    import torch

    return torch.from_numpy(pixels.copy())[None].float() / 255
