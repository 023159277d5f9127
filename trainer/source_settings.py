"""Settings of the dataset formats: one small class each, told apart by `kind`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import Field

from .caption_settings import CaptionEdit
from .settings import Settings, Text, setting

S = TypeVar("S", bound="SourceSettings")
_IMAGES = "Also take still images, as clips of one frame."


class SourceSettings(Settings):
    """What all sources share; `LOCATION` names the field that says where the source lies."""

    LOCATION: ClassVar[str] = "folder"

    repeats: int = setting(
        1, "Repeats", "Times each clip is seen per epoch, to weigh sources against each other.", ge=1, le=1000,
        unit="times", advanced=True,
    )  # fmt: skip
    weight: float = setting(
        1.0, "Loss weight", "How much the loss of these clips counts beside that of other sources; only ratios matter.",
        ge=0.001, le=1000, step=0.05, advanced=True,
    )  # fmt: skip

    @property
    def location(self) -> str:
        """Where the source lies, as the user gave it."""
        return getattr(self, self.LOCATION)

    def at(self: S, location: str) -> S:
        """A copy that lies elsewhere."""
        return self.model_copy(update={self.LOCATION: location})


class ClipSettings(SourceSettings):
    """What all sources of clips share that are still to be encoded."""

    caption: Text = setting("", "Caption", "Caption for clips without one of their own; empty trains them uncaptioned.")
    caption_edits: list[CaptionEdit] = setting(list, "Caption edits", "What is done to this source's captions, one edit after the other.")


class VideoFolder(ClipSettings):
    """A folder of clips with sidecar captions (clip.mp4 + clip.txt or clip.caption)."""

    kind: Literal["folder"] = "folder"
    folder: str = setting("", "Folder", "Folder holding the clips; each may have a caption in a .txt of the same name.")
    subfolders: bool = setting(True, "Subfolders", "Also take clips from the folders inside.")
    images: bool = setting(False, "Images", _IMAGES)
    captions_from: Literal["sidecar", "sidecar lines", "one file", "file name"] = setting(
        "sidecar", "Captions from",
        "sidecar: the text file beside each clip, as one caption. sidecar lines: each of its lines is a caption of its own. "
        "one file: each line of the caption file is a caption of every clip. file name: the clip's name without its ending. "
        "Of several captions one is drawn each time the clip is seen. It may be of a span of time: '[0-2.5s] a man stands up'.",
        advanced=True,
    )  # fmt: skip
    caption_file: str = setting("", "Caption file", "Text file with a caption a line, for captions from one file.", advanced=True)


class PairedFolders(ClipSettings):
    """A folder of clips and a folder of captions with the same names (videos/a.mp4 + captions/a.txt)."""

    kind: Literal["paired"] = "paired"
    folder: str = setting("", "Folder", "Folder holding the two.")
    videos: str = setting("videos", "Clips in", "Folder of the clips, inside the folder or as a full path.", advanced=True)
    captions: str = setting("captions", "Captions in", "Folder of the captions, inside the folder or as a full path.", advanced=True)
    images: bool = setting(False, "Images", _IMAGES)


class VideoList(ClipSettings):
    """A text file naming clips and one with their captions, line by line."""

    kind: Literal["list"] = "list"
    folder: str = setting("", "Folder", "Folder holding the two lists; clips are named relative to their list.")
    videos: str = setting("", "Clip list", "File naming one clip per line; empty finds videos.txt or video.txt.", advanced=True)
    captions: str = setting(
        "", "Caption list", "File with one caption per line; empty finds prompts.txt, captions.txt, prompt.txt or caption.txt.",
        advanced=True,
    )  # fmt: skip


class MetadataTable(ClipSettings):
    """A table of clips and captions: metadata.csv, .json or .jsonl."""

    LOCATION: ClassVar[str] = "file"

    kind: Literal["table"] = "table"
    file: str = setting("", "File", "The .csv, .json or .jsonl table, or the folder of a metadata file; clips are named relative to it.")
    video_column: str = setting("", "Clip column", "Column naming the clips; empty finds file_name, video, path or image.")
    caption_column: str = setting("", "Caption column", "Column of the captions; empty finds caption, text or prompt.")


class CaptionJson(ClipSettings):
    """A videos2caption.json: a list of objects with path and cap, whatever else they hold."""

    LOCATION: ClassVar[str] = "file"

    kind: Literal["caption_json"] = "caption_json"
    file: str = setting("", "File", "The JSON file, or the folder of videos2caption.json; clips lie beside it or in its videos folder.")


class HubDataset(ClipSettings):
    """A Hugging Face dataset: a local folder of any of its layouts, or a hub id."""

    LOCATION: ClassVar[str] = "source"

    kind: Literal["hub"] = "hub"
    source: str = setting("", "Dataset", "A dataset folder, or a hub id such as owner/name.")
    split: str = setting("train", "Split", "Part of the dataset to take, where it is divided.")
    video_column: str = setting("", "Clip column", "Column of the clips; empty finds file_name, video, path or image.")
    caption_column: str = setting("", "Caption column", "Column of the captions; empty finds caption, text or prompt.")
    images: bool = setting(
        False, "Images", f"{_IMAGES} Of datasets that are folders or tars; those that a table or column names are always taken."
    )


class WebDataset(ClipSettings):
    """WebDataset tars: 0001.mp4 and 0001.txt or 0001.json one after the other."""

    LOCATION: ClassVar[str] = "path"

    kind: Literal["webdataset"] = "webdataset"
    path: str = setting("", "Tars", "A .tar, .tar.gz or .tgz file, or a folder of them.")
    caption_key: str = setting(
        "", "Caption key", "Ending of the caption files, or key in their .json; empty finds caption, text, prompt or txt.", advanced=True
    )
    images: bool = setting(False, "Images", f"{_IMAGES} A picture beside a video of its sample is left out.")


class ParquetFolder(SourceSettings):
    """Clips and captions that are encoded already: FastVideo's Parquet files."""

    kind: Literal["parquet"] = "parquet"
    folder: str = setting("", "Folder", "Folder holding FastVideo's Parquet files, or one such file.")
    encoder: str = setting(
        "", "Encoder", "The model whose VAE and text encoder made the files: its folder or hub id. It is compared with the model to train."
    )


ClipSource = VideoFolder | PairedFolders | VideoList | MetadataTable | CaptionJson | HubDataset | WebDataset
Source = Annotated[ClipSource | ParquetFolder, Field(discriminator="kind")]
SOURCES: dict[str, type[SourceSettings]] = {  # by `kind`
    part.model_fields["kind"].default: part for part in (*ClipSettings.__subclasses__(), ParquetFolder)
}
