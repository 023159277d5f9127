"""Station 2, Dataset: one node for each format that clips come in. They can be chained, or combined by Combine Datasets."""

from __future__ import annotations

from typing import Any, ClassVar

from comfy_api.latest import io

from ..trainer.data.sources.inspect import complaint, state
from ..trainer.errors import Problem, UserError
from ..trainer.files import kind_of
from ..trainer.job import DatasetSettings
from ..trainer.packages import require
from ..trainer.source_settings import (
    CaptionJson,
    HubDataset,
    MetadataTable,
    PairedFolders,
    ParquetFolder,
    S,
    SourceSettings,
    VideoFolder,
    VideoList,
    WebDataset,
)
from . import schema
from .host import folders
from .sockets import DatasetSocket

CATEGORY = "Video Trainer/2 Dataset"
DEMO_FOLDER = "video_trainer_demo"
SHARED = ("caption", "repeats", "weight")  # settings of every source that has them, after its own


def dataset_output() -> io.Output:
    """What every dataset node gives."""
    return DatasetSocket.Output("dataset_out", "dataset", tooltip="The clips, for Train Video Model or another dataset node.")


def _append_input() -> io.Input:
    return DatasetSocket.Input("dataset", "dataset", optional=True, tooltip="Clips to add these to: sources can be chained.")


def placed(source: S) -> S:
    """The source with places inside ComfyUI's input folder made absolute; a hub id stays as it is."""
    place = folders.input_path(source.location)
    if isinstance(source, VideoFolder) and source.caption_file.strip():
        source = source.model_copy(update={"caption_file": str(folders.input_path(source.caption_file))})
    hub_id = isinstance(source, HubDataset) and not kind_of(place)
    return source if hub_id or not source.location.strip() else source.at(str(place))


class SourceNode(io.ComfyNode):
    """What all source nodes share: the settings become inputs, the place is checked before anything runs."""

    SETTINGS: ClassVar[type[SourceSettings]]
    ID: ClassVar[str]
    TITLE: ClassVar[str]
    ABOUT: ClassVar[str]
    ALIASES: ClassVar[tuple[str, ...]]
    OWN: ClassVar[tuple[str, ...]]  # settings that only this source has, its place first
    ADDED: ClassVar[tuple[str, ...]] = ()  # own settings that came later: widgets of saved graphs are told by their order

    @classmethod
    def define_schema(cls) -> io.Schema:
        """The source's settings, its place required."""
        order = (*cls.OWN, *(name for name in SHARED if name in cls.SETTINGS.model_fields), *cls.ADDED)
        fields = schema.inputs(cls.SETTINGS, only=order, multiline=("caption",), required=(cls.SETTINGS.LOCATION,))
        return io.Schema(
            node_id=cls.ID,
            display_name=cls.TITLE,
            category=CATEGORY,
            description=cls.ABOUT,
            search_aliases=list(cls.ALIASES),
            inputs=[*fields, _append_input()],
            outputs=[dataset_output()],
        )

    @classmethod
    def validate_inputs(cls, **values: Any) -> bool | str:
        """Marks the node when a setting is not accepted, or its place is missing or holds no video."""
        if any(values[name] is None for name in schema.values(cls.SETTINGS, values)):  # linked: known only when it runs
            return True
        try:
            found = complaint(cls._source(values), folders.places().cache, folders.downloads_allowed())
        except UserError as error:
            return str(error)
        return f"{cls.SETTINGS.model_fields[cls.SETTINGS.LOCATION].title}: {found}" if found else True

    @classmethod
    def fingerprint_inputs(cls, **values: Any) -> Any:
        """Changes with the names, sizes and times of the files; a linked place is known only when it runs."""
        return state(cls._source(values)) if values.get(cls.SETTINGS.LOCATION) else float("nan")

    @classmethod
    def execute(cls, dataset: DatasetSettings | None = None, **values: Any) -> io.NodeOutput:
        """Adds the source."""
        return io.NodeOutput((dataset or DatasetSettings()).with_source(cls._source(values)))

    @classmethod
    def _source(cls, values: dict[str, Any]) -> Any:
        return placed(schema.build(cls.SETTINGS, values))


class VideoFolderNode(SourceNode):
    """A folder of clips with sidecar captions."""

    SETTINGS = VideoFolder
    ID, TITLE = "VideoTrainerVideoFolder", "Video Folder"
    ABOUT = "Training clips from a folder, each captioned by a .txt file of the same name."
    ALIASES = ("load video dataset", "clips", "training data", "captions", "image folder")
    OWN, ADDED = ("folder", "subfolders"), ("images", "captions_from", "caption_file")


class PairedFoldersNode(SourceNode):
    """A folder of clips and one of captions."""

    SETTINGS = PairedFolders
    ID, TITLE = "VideoTrainerPairedFolders", "Paired Folders"
    ABOUT = "Training clips from a videos folder, each captioned by the file of the same name in a captions folder."
    ALIASES = ("videos and captions", "load video dataset")
    OWN, ADDED = ("folder", "videos", "captions"), ("images",)


class VideoListNode(SourceNode):
    """Two lists, of clips and of captions."""

    SETTINGS = VideoList
    ID, TITLE = "VideoTrainerVideoList", "Video List"
    ABOUT = "Training clips named line by line in videos.txt, with their captions line by line in prompts.txt."
    ALIASES = ("videos.txt", "prompts.txt", "captions.txt", "load video dataset")
    OWN = ("folder", "videos", "captions")


class MetadataTableNode(SourceNode):
    """A table of clips and captions."""

    SETTINGS = MetadataTable
    ID, TITLE = "VideoTrainerMetadataTable", "Metadata Table"
    ABOUT = "Training clips and captions from a metadata.csv, .json or .jsonl table."
    ALIASES = ("metadata.csv", "metadata.jsonl", "video column", "caption column", "load video dataset")
    OWN = ("file", "video_column", "caption_column")


class CaptionJsonNode(SourceNode):
    """A videos2caption.json."""

    SETTINGS = CaptionJson
    ID, TITLE = "VideoTrainerCaptionJson", "Caption JSON"
    ABOUT = "Training clips and captions from a videos2caption.json, of which only path and cap are needed."
    ALIASES = ("videos2caption.json", "load video dataset")
    OWN = ("file",)


class HubDatasetNode(SourceNode):
    """A Hugging Face dataset."""

    SETTINGS = HubDataset
    ID, TITLE = "VideoTrainerHubDataset", "Hub Dataset"
    ABOUT = "Training clips from a Hugging Face dataset: a local folder, or a hub id where downloads are allowed."
    ALIASES = ("hugging face datasets", "parquet", "arrow", "load video dataset")
    OWN, ADDED = ("source", "split", "video_column", "caption_column"), ("images",)


class WebDatasetNode(SourceNode):
    """WebDataset tars."""

    SETTINGS = WebDataset
    ID, TITLE = "VideoTrainerWebDataset", "WebDataset"
    ABOUT = "Training clips and captions from WebDataset tars. Clips are unpacked into the cache."
    ALIASES = ("tar", "shards", "load video dataset")
    OWN, ADDED = ("path", "caption_key"), ("images",)


class LoadParquet(SourceNode):
    """FastVideo's Parquet files."""

    SETTINGS = ParquetFolder
    ID, TITLE = "VideoTrainerLoadParquet", "Load Parquet"
    ABOUT = "Clips and captions that are encoded already, from FastVideo's Parquet files or those of Save Parquet."
    ALIASES = ("fastvideo", "latents", "preprocessed dataset", "precomputed", "load video dataset")
    OWN = ("folder", "encoder")

    @classmethod
    def _source(cls, values: dict[str, Any]) -> ParquetFolder:
        """The source with its place absolute, in the input folder or else the output folder, where Save Parquet writes."""
        source = schema.build(cls.SETTINGS, values)
        if not source.location.strip():
            return source
        meant = [source.at(str(place)) for place in folders.own_paths(source.location)]
        found = [complaint(one, folders.places().cache, False) for one in meant]
        if "" not in found:
            raise UserError(Problem(one.location, wrong) for one, wrong in zip(meant, found, strict=True))
        return meant[found.index("")]


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
            outputs=[dataset_output()],
        )

    @classmethod
    def fingerprint_inputs(cls, **_: Any) -> Any:
        """Changes with the files in the folder."""
        return state(VideoFolder(folder=str(folders.input_path(DEMO_FOLDER))))

    @classmethod
    def execute(cls, dataset: DatasetSettings | None = None) -> io.NodeOutput:
        """Writes the clips unless they are there."""
        require()
        folder = folders.input_path(DEMO_FOLDER)
        source = VideoFolder(folder=str(folder))
        if complaint(source, folders.places().cache, False):
            from ..trainer.demo.clips import write_demo_clips

            write_demo_clips(folder)
        return io.NodeOutput((dataset or DatasetSettings()).with_source(source))
