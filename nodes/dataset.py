"""Station 2, Dataset: what is made of the clips before they are trained on."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ..trainer.dataset_settings import combined
from ..trainer.job import CaptionEdit, DatasetSettings, WindowSettings
from . import schema
from .prompt_lines import complaint, parse_buckets
from .sockets import DatasetSocket
from .sources import CATEGORY, dataset_output

MOST_COMBINED = 16


class CombineDatasets(io.ComfyNode):
    """Several datasets as one."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """As many dataset sockets as are linked, at least two."""
        socket = DatasetSocket.Input("dataset", tooltip="Clips to train on.")
        return io.Schema(
            node_id="VideoTrainerCombineDatasets",
            display_name="Combine Datasets",
            category=CATEGORY,
            description="Several datasets as one; repeats and loss weight of their sources say how much each counts.",
            search_aliases=["merge datasets", "concatenate", "mix", "several folders"],
            inputs=[
                io.Autogrow.Input(
                    "datasets", io.Autogrow.TemplatePrefix(socket, "dataset", min=2, max=MOST_COMBINED), display_name="datasets",
                    tooltip="Two or more datasets; a free socket appears as the last one is linked.",
                ),
            ],
            outputs=[dataset_output()],
        )  # fmt: skip

    @classmethod
    def execute(cls, datasets: io.Autogrow.Type) -> io.NodeOutput:
        """Puts the sources one after the other."""
        return io.NodeOutput(combined(list(datasets.values())))


class CaptionEditNode(io.ComfyNode):
    """Edits captions on their way into training; no file is changed."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The fields of `CaptionEdit`."""
        return io.Schema(
            node_id="VideoTrainerCaptionEdit",
            display_name="Caption Edit",
            category=CATEGORY,
            description="Trigger word, template, tag shuffling and more for the captions of a dataset. Caption files stay as they are.",
            search_aliases=["trigger word", "id token", "prefix", "suffix", "shuffle tags", "caption template", "caption settings"],
            inputs=[
                DatasetSocket.Input("dataset", "dataset", tooltip="The clips whose captions are edited."),
                *schema.inputs(CaptionEdit),
            ],
            outputs=[dataset_output()],
        )

    @classmethod
    def execute(cls, dataset: DatasetSettings, **values: Any) -> io.NodeOutput:
        """Adds the edit to every source linked so far."""
        return io.NodeOutput(dataset.with_caption_edit(schema.build(CaptionEdit, values)))


class FrameBuckets(io.ComfyNode):
    """Sets the clip sizes to train at."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """Sizes one per line, and the frame rate."""
        return io.Schema(
            node_id="VideoTrainerFrameBuckets",
            display_name="Frame Buckets",
            category=CATEGORY,
            description="Sets the clip sizes to train at. Without this node they are chosen from the clips.",
            search_aliases=["resolution buckets", "frame count", "bucketing"],
            inputs=[
                DatasetSocket.Input("dataset", "dataset", tooltip="The clips to train on."),
                io.String.Input(
                    "sizes", display_name="Sizes", multiline=True, default="49x480x832\n33x480x832\n17x480x832",
                    tooltip="One size per line: frames x height x width. A clip takes the longest that it fills, of the nearest shape.",
                ),
                *schema.inputs(DatasetSettings, only=("fps",)),
            ],
            outputs=[dataset_output()],
        )  # fmt: skip

    @classmethod
    def validate_inputs(cls, sizes: str = "") -> bool | str:
        """Marks the node when a size cannot be read."""
        return complaint(parse_buckets, sizes)

    @classmethod
    def execute(cls, dataset: DatasetSettings, sizes: str, fps: float = 0.0) -> io.NodeOutput:
        """Replaces sizes and frame rate."""
        return io.NodeOutput(dataset.model_copy(update={"buckets": parse_buckets(sizes), "fps": fps}))


class FramePackWindows(io.ComfyNode):
    """Cuts clips into overlapping windows."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The fields of `WindowSettings`."""
        return io.Schema(
            node_id="VideoTrainerFramePackWindows",
            display_name="FramePack Windows",
            category=CATEGORY,
            description="Trains on overlapping windows of each clip, one frame apart. It is a way to cut clips, not the FramePack model.",
            search_aliases=["sliding window", "framepack", "long video"],
            inputs=[DatasetSocket.Input("dataset", "dataset", tooltip="The clips to cut."), *schema.inputs(WindowSettings)],
            outputs=[dataset_output()],
        )

    @classmethod
    def execute(cls, dataset: DatasetSettings, **values: Any) -> io.NodeOutput:
        """Adds the windows to the dataset."""
        return io.NodeOutput(dataset.model_copy(update={"windows": schema.build(WindowSettings, values)}))
