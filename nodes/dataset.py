"""Station 2, Dataset: what is made of the clips before they are trained on."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ..trainer.dataset_settings import combined
from ..trainer.frame_settings import FrameSampling
from ..trainer.job import CaptionEdit, DatasetSettings, WindowSettings
from . import schema
from .prompt_lines import parse_buckets, parse_list
from .sockets import DatasetSocket
from .sources import CATEGORY, dataset_output
from .validation import verdict

MOST_COMBINED = 16
_LISTS = ("frame_buckets", "resolutions", "aspect_ratios")


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
        """Sizes one per line, and the frame rate; areas, shapes and the crop folded away."""
        return io.Schema(
            node_id="VideoTrainerFrameBuckets",
            display_name="Frame Buckets",
            category=CATEGORY,
            description="Sets the clip sizes to train at. Without this node they are chosen from the clips.",
            search_aliases=["resolution buckets", "frame count", "bucketing", "aspect ratio", "crop", "resize"],
            inputs=[
                DatasetSocket.Input("dataset", "dataset", tooltip="The clips to train on."),
                io.String.Input(
                    "sizes", display_name="Sizes", multiline=True, default="49x480x832\n33x480x832\n17x480x832",
                    tooltip="One size per line: frames x height x width. A clip takes the longest that it fills, of the nearest shape.",
                ),
                *schema.inputs(DatasetSettings, only=("fps",)),
                *(_list_input(name) for name in _LISTS),
                *schema.inputs(DatasetSettings, only=("crop_position", "no_upscale")),
            ],
            outputs=[dataset_output()],
        )  # fmt: skip

    @classmethod
    def validate_inputs(cls, sizes: str = "", frame_buckets: str = "", resolutions: str = "", aspect_ratios: str = "") -> bool | str:
        """Marks the node when a size cannot be read."""
        lists = {"frame_buckets": frame_buckets, "resolutions": resolutions, "aspect_ratios": aspect_ratios}
        return verdict(cls._settings, sizes, lists)

    @classmethod
    def execute(cls, dataset: DatasetSettings, sizes: str, **values: Any) -> io.NodeOutput:
        """Replaces sizes, frame rate and crop."""
        made = cls._settings(sizes, values)
        changed = ("buckets", "fps", *_LISTS, "crop_position", "no_upscale")
        return io.NodeOutput(dataset.model_copy(update={name: getattr(made, name) for name in changed}))

    @classmethod
    def _settings(cls, sizes: str, values: dict[str, Any]) -> DatasetSettings:
        """A dataset with only these settings; raises UserError naming each that is not accepted."""
        lists = {name: parse_list(values.get(name) or "") for name in _LISTS}
        return schema.build(DatasetSettings, {**values, **lists, "buckets": parse_buckets(sizes or "")})


def _list_input(name: str) -> io.Input:
    """A setting that is a list, written in one line with commas."""
    about = DatasetSettings.model_fields[name]
    return io.String.Input(
        name, display_name=about.title, default="", optional=True, advanced=True, tooltip=f"{about.description} Separated by commas."
    )


class FrameSamplingNode(io.ComfyNode):
    """Says which frames of a clip are trained on."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The fields of `FrameSampling`."""
        return io.Schema(
            node_id="VideoTrainerFrameSampling",
            display_name="Frame Sampling",
            category=CATEGORY,
            description="Says which frames of a clip are trained on. Without this node they are its first, as many as its bucket takes.",
            search_aliases=["frame extraction", "chunk", "random start", "max frames", "temporal augmentation", "scene detection"],
            inputs=[DatasetSocket.Input("dataset", "dataset", tooltip="The clips to train on."), *schema.inputs(FrameSampling)],
            outputs=[dataset_output()],
        )

    @classmethod
    def execute(cls, dataset: DatasetSettings, **values: Any) -> io.NodeOutput:
        """Replaces these settings of the dataset."""
        sampling = schema.build(FrameSampling, values)
        return io.NodeOutput(dataset.model_copy(update={name: getattr(sampling, name) for name in FrameSampling.model_fields}))


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
