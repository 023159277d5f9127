"""The model that a job or a command names: a folder, a name in the known model folders, or a hub id."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .data.sources.paths import folder_path
from .errors import fail
from .files import kind_of
from .hub import HUB_ID, model
from .job import ModelSettings, TrainingJob

if TYPE_CHECKING:
    from .events import EventLog

WEIGHTS = (".safetensors", ".gguf", ".sft", ".ckpt", ".pt", ".pth", ".bin")  # endings of files that are no jobs


def job_or_model(text: str) -> TrainingJob:
    """A job file, whatever it is called, or the default job of a model; raises UserError for a file that is no job."""
    path, ending = Path(text), Path(text).suffix.lower()
    is_job = ending == ".json" or (ending not in WEIGHTS and _is_file_or_pipe(path))
    return TrainingJob.load(path) if is_job else TrainingJob(model=ModelSettings(source=text))


def _is_file_or_pipe(path: Path) -> bool:
    """Whether there is a file, or a pipe such as a shell's <(…)."""
    try:
        return path.exists() and not path.is_dir()
    except (OSError, ValueError):  # no name that a file could have
        return False


def find_model(model: ModelSettings, model_folders: Sequence[Path], downloads: Path | None, log: EventLog | None = None) -> ModelSettings:
    """The settings with the place of its folder, or of its files; raises UserError saying where it was looked for.

    A hub id is taken from the local copies first, and downloaded into `downloads` only if that is given; `log` hears how
    far that is.
    """
    if not model.files:
        return model.model_copy(update={"source": str(find_folder(model.source, model_folders, downloads, log))})
    if model.source.strip():
        found = f"'{model.source}' is given beside single files ({Path(model.files[0]).name}, …)."
        raise fail("model.source", found, "Give a folder or hub id, or files, not both.")
    if not model.transformer.strip():
        raise fail("model.transformer", "is empty, and other single files are given.", "Choose the diffusion model's file.")
    return model.with_paths(lambda name: str(folder_path(name)) if name.strip() else "")


def find_folder(source: str, model_folders: Sequence[Path], downloads: Path | None, log: EventLog | None = None) -> Path:
    """The diffusers folder for `source`."""
    name = str(folder_path(source))
    if not source.strip():
        raise fail("model.source", "is empty.", "Give a diffusers model folder or a hub id (owner/name).")
    own = name.replace("\\", "/").rpartition("/")[2]  # a hub model's usual folder has its name without the owner's
    candidates = [Path(name), *(folder / part for folder in model_folders for part in dict.fromkeys((name, own)) if part)]
    for candidate in candidates:
        if kind_of(candidate / "model_index.json") == "file":
            return candidate
    for candidate in candidates:
        if kind_of(candidate) == "folder":
            return candidate  # open_model says what is wrong inside
    if kind_of(Path(name)) == "file":
        found = f"'{name}' is a single file, and a folder is meant here."
        raise fail("model.source", found, "In a job name it as model.transformer; commands for LoRA files take the family's name instead.")
    if not HUB_ID.fullmatch(name.replace("\\", "/")):
        looked = ", ".join(str(folder) for folder in model_folders) or "no model folders are known"
        cure = "Give the full path of a diffusers folder, or on the command line name the folder that it lies in with --models."
        raise fail("model.source", f"'{name}' was not found (looked in: {looked}).", cure)
    return model(name.replace("\\", "/"), downloads, "model.source", log, model_folders)
