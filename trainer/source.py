"""Finding the model that a job names: a folder, a name in the known model folders, or a hub id."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .data.sources.paths import folder_path
from .errors import fail
from .files import kind_of
from .hub import HUB_ID, snapshot

HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]  # weights only as safetensors; no code


def find_model(source: str, model_folders: Sequence[Path], downloads: Path | None) -> Path:
    """The diffusers folder for `source`; raises UserError saying where it was looked for.

    A hub id is taken from the local copies first, and downloaded into `downloads` only if that is given.
    """
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
    if not HUB_ID.fullmatch(name.replace("\\", "/")):
        looked = ", ".join(str(folder) for folder in model_folders) or "no model folders are known"
        cure = "Give the full path of a diffusers folder, or on the command line name the folder that it lies in with --models."
        raise fail("model.source", f"'{name}' was not found (looked in: {looked}).", cure)
    return snapshot(name.replace("\\", "/"), HUB_FILES, downloads, downloads is not None, "model.source", looked=model_folders)
