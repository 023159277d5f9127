"""Station 2, Dataset: where the clips come from and how they become training examples."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from comfy_api.latest import io

from ..trainer.data.sources.folder import CLIP_EXTENSIONS
from ..trainer.job import DatasetSettings, VideoFolder, WindowSettings
from ..trainer.packages import require
from . import host, schema
from .prompt_lines import complaint, parse_buckets
from .sockets import DatasetSocket

CATEGORY = "Video Trainer/2 Dataset"
DEMO_FOLDER = "video_trainer_demo"


def _append_input() -> io.Input:
    return DatasetSocket.Input("dataset", "dataset", optional=True, tooltip="Clips to add these to: folders can be chained.")


def _output() -> io.Output:
    return DatasetSocket.Output("dataset_out", "dataset", tooltip="The clips, for Train Video Model or another dataset node.")


def _with_folder(dataset: DatasetSettings | None, folder: VideoFolder) -> DatasetSettings:
    dataset = dataset or DatasetSettings()
    return dataset.model_copy(update={"folders": [*dataset.folders, folder]})


class DemoClips(io.ComfyNode):
    """Twelve captioned clips of a shape that the demo model has never seen."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """No settings: only what to add the clips to."""
        return io.Schema(
            node_id="VideoTrainerDemoClips",
            display_name="Demo Clips",
            category=CATEGORY,
            description="Writes twelve small captioned clips into ComfyUI's input folder: a new shape, a zorp, to teach the demo model.",
            search_aliases=["example dataset", "sample clips"],
            inputs=[_append_input()],
            outputs=[_output()],
        )

    @classmethod
    def fingerprint_inputs(cls, **_: Any) -> Any:
        """Changes with the files in the folder."""
        return _state(host.input_folder(DEMO_FOLDER), True)

    @classmethod
    def execute(cls, dataset: DatasetSettings | None = None) -> io.NodeOutput:
        """Writes the clips unless they are there."""
        require()
        folder = host.input_folder(DEMO_FOLDER)
        if not any(_videos(folder, True)):
            from ..trainer.demo.clips import write_demo_clips

            write_demo_clips(folder)
        return io.NodeOutput(_with_folder(dataset, VideoFolder(folder=str(folder))))


class VideoFolderNode(io.ComfyNode):
    """A folder of clips with sidecar captions."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The fields of `VideoFolder`."""
        return io.Schema(
            node_id="VideoTrainerVideoFolder",
            display_name="Video Folder",
            category=CATEGORY,
            description="Training clips from a folder, each captioned by a .txt file of the same name.",
            search_aliases=["load video dataset", "clips", "training data", "captions"],
            inputs=[*schema.inputs(VideoFolder, multiline=("caption",), required=("folder",)), _append_input()],
            outputs=[_output()],
        )

    @classmethod
    def validate_inputs(cls, folder: str = "", subfolders: bool = True) -> bool | str:
        """Marks the node when the folder is missing or holds no video."""
        if folder is None or subfolders is None:  # linked: known only when it runs
            return True
        return _problem(folder, subfolders) or True

    @classmethod
    def fingerprint_inputs(cls, folder: str = "", subfolders: bool = True, **_: Any) -> Any:
        """Changes with the names, sizes and times of the files."""
        return _state(host.input_folder(folder), subfolders)

    @classmethod
    def execute(cls, folder: str, dataset: DatasetSettings | None = None, **values: Any) -> io.NodeOutput:
        """Adds the folder."""
        return io.NodeOutput(_with_folder(dataset, schema.build(VideoFolder, {**values, "folder": str(host.input_folder(folder))})))


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
            outputs=[_output()],
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
            outputs=[_output()],
        )

    @classmethod
    def execute(cls, dataset: DatasetSettings, **values: Any) -> io.NodeOutput:
        """Adds the windows to the dataset."""
        return io.NodeOutput(dataset.model_copy(update={"windows": schema.build(WindowSettings, values)}))


def _problem(folder: str, subfolders: bool) -> str:
    if not folder.strip():
        return "Folder: no folder is given. Write a folder of clips, absolute or inside ComfyUI's input folder."
    path = host.input_folder(folder)
    if not path.is_dir():
        return f"Folder: '{path}' does not exist. Write an absolute folder, or one inside ComfyUI's input folder."
    if not any(_videos(path, subfolders)):
        return f"Folder: '{path}' holds no video. Known endings: {', '.join(CLIP_EXTENSIONS)}."
    return ""


def _videos(folder: Path, subfolders: bool) -> Iterator[Path]:
    return (file for file in _files(folder, subfolders) if file.suffix.lower() in CLIP_EXTENSIONS)


def _files(folder: Path, subfolders: bool) -> Iterator[Path]:
    """Files as the trainer finds them: links are followed, each real folder once, hidden ones never."""
    visited = set[str]()
    for inside, inner, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(inside)
        inner[:] = [name for name in inner if not name.startswith(".")] if subfolders and real not in visited else []
        if real not in visited:
            yield from (Path(inside) / name for name in names if not name.startswith("."))
        visited.add(real)


def _state(folder: Path, subfolders: bool) -> list[tuple[str, int, int]]:
    stats = ((file, file.stat()) for file in sorted(_files(folder, subfolders)) if file.is_file())
    return [(file.relative_to(folder).as_posix(), stat.st_size, stat.st_mtime_ns) for file, stat in stats]
