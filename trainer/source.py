"""Finding the model that a job names: a folder, a name in the known model folders, or a hub id."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from .data.sources.folder import folder_path
from .errors import fail
from .files import kind_of

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
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
        raise fail("model.source", f"'{name}' was not found (looked in: {looked}).", "Give the full path of a diffusers folder.")
    return _from_hub(name.replace("\\", "/"), downloads)


def _from_hub(name: str, downloads: Path | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES, local_files_only=True))
    except (LocalEntryNotFoundError, FileNotFoundError):
        pass
    if downloads is None:
        raise fail(
            "model.source",
            f"'{name}' is not on this machine and downloads are off.",
            "Download it into models/diffusers, or allow downloads: --allow-downloads on the command line, "
            "or start ComfyUI with VIDEO_TRAINER_ALLOW_DOWNLOADS=1.",
        )
    target = downloads / name
    unfinished = target.with_name(f".{target.name}.part")
    try:
        snapshot_download(name, allow_patterns=HUB_FILES, local_dir=unfinished)
        os.replace(unfinished, target)
    except (HfHubHTTPError, OSError) as error:
        cure = "Check the name and the connection; running again goes on where it stopped."
        raise fail("model.source", f"'{name}' could not be downloaded: {error}.", cure) from None
    return target
