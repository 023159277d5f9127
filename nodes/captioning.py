"""Station 2, Dataset: captions written beside the clips, and the clips as pictures for other captioners."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io, ui

from ..trainer.caption_settings import CaptionWriting
from ..trainer.errors import fail
from ..trainer.job import DatasetSettings
from ..trainer.packages import require
from . import schema
from .host import folders, running
from .host.listener import NodeListener
from .sockets import DatasetSocket
from .sources import CATEGORY, dataset_output
from .text_generation import NEEDED, ClipCaptioner


class CaptionClips(io.ComfyNode):
    """Writes caption files."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """A dataset, what captions it, and the fields of `CaptionWriting`."""
        return io.Schema(
            node_id="VideoTrainerCaptionClips",
            display_name="Caption Clips",
            category=CATEGORY,
            description="Writes a caption file beside each clip: what a vision-language model says of it, or captions from any other node.",
            search_aliases=["auto caption", "captioner", "describe video", "vlm", "sidecar", "tag clips", "generate captions"],
            inputs=[
                DatasetSocket.Input("dataset", "dataset", tooltip="Clips of Video Folder nodes inside ComfyUI's input or output folder."),
                io.Clip.Input(
                    "clip", display_name="clip", optional=True, tooltip=f"The language model that looks at the clips. {NEEDED}"
                ),
                io.String.Input(
                    "captions", display_name="captions", optional=True, force_input=True,
                    tooltip="Instead of a clip: a list with one caption per clip, or one text with a line for each, in the order of "
                    "Clips to Images.",
                ),
                *schema.inputs(CaptionWriting, multiline=("instruction",)),
            ],
            outputs=[
                dataset_output(),
                io.String.Output(
                    "captions_out", "captions", is_output_list=True,
                    tooltip="What the caption file of each clip that can be read says now, in the same order; empty for a clip without.",
                ),
            ],
            is_input_list=True,
            is_output_node=True,
        )  # fmt: skip

    @classmethod
    def execute(cls, dataset: list[DatasetSettings], **values: list[Any]) -> io.NodeOutput:
        """Writes what is missing, clip by clip; everything comes as a list, because the captions do."""
        from ..trainer.data.captioning import caption_clips, readable, sidecars, take_captions
        from ..trainer.events import EventLog

        require()
        clip, captions = (values.get("clip") or [None])[0], values.get("captions")
        settings = schema.build(CaptionWriting, {name: value[0] for name, value in values.items() if value})
        if (clip is None) == (captions is None):
            found = "both a clip and captions are linked." if captions is not None else "neither a clip nor captions are linked."
            raise fail("Caption Clips", found, "Link a CLIP that generates text, or a list of captions.")
        listener = NodeListener()
        log = EventLog(listener)
        with running.cancelling():
            places, unread = readable(sidecars(dataset[0], folders.own_folders(), log.check), log.check)
            if captions is not None:
                made = take_captions(places, captions, log, settings.existing)
            else:
                captioner = ClipCaptioner(clip, settings.instruction, settings.max_length, settings.seed)
                made = caption_clips(places, captioner, log, settings.existing, settings.frames)
        made.failed[:0] = unread
        listener.conclude(str(made))
        return io.NodeOutput(dataset[0], made.captions, ui=ui.PreviewText(str(made)))


class ClipsToImages(io.ComfyNode):
    """Frames of each clip, for captioners of other packs."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """A dataset, and how many frames of what size."""
        return io.Schema(
            node_id="VideoTrainerClipsToImages",
            display_name="Clips to Images",
            category=CATEGORY,
            description="Frames of each clip as a list of images, for a captioner of another pack, whose text goes into Caption Clips.",
            search_aliases=["captioner", "first frame", "middle frame", "frames of dataset"],
            inputs=[
                DatasetSocket.Input("dataset", "dataset", tooltip="The same clips that Caption Clips is given."),
                io.Int.Input(
                    "frames", display_name="Frames", default=1, min=1, max=64, optional=True,
                    tooltip="Frames of each clip, evenly spaced, as one image batch. 1 is its middle frame, which suits every captioner.",
                ),
                io.Int.Input(
                    "longest_side", display_name="Longest side", default=512, min=64, max=4096, optional=True,
                    tooltip="Larger frames are scaled down to it. In px.",
                ),
            ],
            outputs=[
                io.Image.Output(
                    "images", "images", is_output_list=True, tooltip="One image batch per clip, in the order that Caption Clips expects."
                )
            ],
        )  # fmt: skip

    @classmethod
    def execute(cls, dataset: DatasetSettings, frames: int = 1, longest_side: int = 512) -> io.NodeOutput:
        """Decodes them; a clip that breaks off is a black picture, so that the others keep their places."""
        import torch

        from ..trainer.data.captioning import frames_of, readable, sidecars
        from ..trainer.data.sources.record import UnusableClip
        from ..trainer.events import EventLog, Phase

        require()
        listener = NodeListener()
        log, images = EventLog(listener), []
        with running.cancelling():
            places, unread = readable(sidecars(dataset, folders.own_folders(), log.check), log.check)
            log.emit(Phase("read", "Reading frames"))
            done = log.progress(len(places), "clips")
            for number, place in enumerate(places):
                done(number)
                try:
                    images.append(torch.from_numpy(frames_of(place.clip.path, frames, longest_side, log.check)).float() / 255)
                except UnusableClip as error:
                    unread.append(f"{place.clip.name}: {error}. {error.cure}")
                    images.append(torch.zeros(1, longest_side, longest_side, 3))
            done(len(places))
        listener.conclude("\n".join([f"{len(images)} clips", *unread]))
        return io.NodeOutput(images)
