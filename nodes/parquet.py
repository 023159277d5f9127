"""Station 2, Dataset: an encoded dataset as files for other trainers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comfy_api.latest import io, ui

from ..trainer.data.sources.inspect import state
from ..trainer.job import DatasetSettings
from ..trainer.source_settings import ParquetFolder
from .host import folders, running
from .host.listener import NodeListener
from .sockets import DatasetSocket, ModelReference, ModelSocket
from .sources import CATEGORY
from .validation import verdict

if TYPE_CHECKING:
    from ..trainer.data.parquet.export import ExportKind

CONTENTS: dict[str, ExportKind] = {"clips": "t2v", "captions only": "text_only"}


class SaveParquet(io.ComfyNode):
    """Writes a dataset as FastVideo's Parquet."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """A model, whose encoders are used, a dataset, and a folder below ComfyUI's output folder."""
        return io.Schema(
            node_id="VideoTrainerSaveParquet",
            display_name="Save Parquet",
            category=CATEGORY,
            description="Encodes a dataset with the model's VAE and text encoder and writes it as FastVideo's Parquet files.",
            search_aliases=["fastvideo", "export dataset", "latents", "preprocess"],
            inputs=[
                ModelSocket.Input("model", "video model", tooltip="The model whose VAE and text encoder encode the clips."),
                DatasetSocket.Input("dataset", "dataset", tooltip="The clips to encode, with their sizes, windows and captions."),
                io.String.Input(
                    "folder", display_name="Folder", default="parquet/my_clips",
                    tooltip="A new folder inside ComfyUI's output folder. Writing the same dataset again goes on where it stopped.",
                ),
                io.Combo.Input(
                    "contents", options=list(CONTENTS), display_name="Contents", optional=True, default="clips",
                    tooltip="clips: latents and captions, to train on. captions only: each caption once, for distillation.",
                ),
            ],
            outputs=[io.String.Output("folder_out", "folder", tooltip="The folder's full path, for Load Parquet.")],
            is_output_node=True,
        )  # fmt: skip

    @classmethod
    def validate_inputs(cls, folder: str | None = "") -> bool | str:
        """Marks the node when its folder would leave the output folder."""
        if folder is None:  # linked: known only when it runs
            return True
        return verdict(folders.output_folder, folder)

    @classmethod
    def fingerprint_inputs(cls, folder: str = "", **_: Any) -> Any:
        """Changes with the files there, so that deleted ones are written again; a linked place is known only when it runs."""
        return state(ParquetFolder(folder=str(folders.output_folder(folder)))) if folder else float("nan")

    @classmethod
    def execute(cls, model: ModelReference, dataset: DatasetSettings, folder: str, contents: str = "clips") -> io.NodeOutput:
        """Encodes what is not in the cache and writes the files; the node's text says what of the dataset they do not hold."""
        from ..trainer.parquet_export import save_parquet

        out, listener = folders.output_folder(folder), NodeListener()
        with running.computing(listener):
            files = save_parquet(model.settings, dataset, out, folders.places(), running.compute_settings(), CONTENTS[contents], listener)
        text = "\n".join([f"files written: {len(files)}", *listener.notices])
        listener.conclude(text)
        return io.NodeOutput(str(out), ui=ui.PreviewText(text))
