"""Models and datasets of the Hugging Face hub: local copies first, downloads only where they are allowed."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .errors import fail
from .files import kind_of
from .hub_model import ModelDownload, download_errors, not_downloaded

if TYPE_CHECKING:
    from .events import EventLog

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
MODEL_FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]  # weights only as safetensors; no code


def model(name: str, folder: Path | None, where: str, log: EventLog | None = None, looked: Sequence[Path] = ()) -> Path:
    """The folder of a hub model, downloaded into `folder` unless that is None, which forbids it.

    Only the parts that its model_index.json names are taken. Raises UserError, of the setting `where`, if it is not on
    this machine and cannot or must not be downloaded; it names the folders that were `looked` into before. Raises
    Interrupted on a cancel; running again goes on where it stopped.
    """
    found = _local(name, MODEL_FILES, folder, where, "model")
    if found is not None:
        return found
    target = _target(name, folder, True, where, looked)
    ModelDownload(name, target, where, log).run()
    return target


def snapshot(name: str, patterns: Sequence[str], folder: Path | None, allowed: bool, where: str) -> Path:
    """The folder of a hub dataset's files that match `patterns`, downloaded into `folder` if that is `allowed`.

    Raises UserError, of the setting `where`, if it is not on this machine and cannot or must not be downloaded.
    """
    from huggingface_hub import snapshot_download

    found = _local(name, patterns, folder, where, "dataset")
    if found is not None:
        return found
    target = _target(name, folder, allowed, where)
    unfinished = target.with_name(f".{target.name}.part")
    try:
        snapshot_download(name, repo_type="dataset", allow_patterns=list(patterns), local_dir=unfinished)
        os.replace(unfinished, target)
    except download_errors() as error:
        raise not_downloaded(where, name, error) from None
    return target


def _local(name: str, patterns: Sequence[str], folder: Path | None, where: str, kind: Literal["model", "dataset"]) -> Path | None:
    """A copy in our folder, or in the cache that all programs of this machine share."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    target = folder / name if folder else None
    if target is not None and kind_of(target) == "folder":
        return target
    try:
        return Path(snapshot_download(name, repo_type=kind, allow_patterns=list(patterns), local_files_only=True))
    except (LocalEntryNotFoundError, FileNotFoundError):
        return None
    except HFValidationError as error:
        raise fail(where, f"'{name[:200]}' is no hub id: {str(error).partition(': ')[0]}.", "Give the id as the hub shows it.") from None


def _target(name: str, folder: Path | None, allowed: bool, where: str, looked: Sequence[Path] = ()) -> Path:
    """Where to download to; raises UserError if that is not allowed."""
    if folder is None or not allowed:
        places = f" (looked in: {', '.join(map(str, looked))}, and the Hugging Face cache)" if looked else ""
        others = "Download it into one of these folders or one that --models names on the command line" if looked else "Download it"
        raise fail(
            where,
            f"'{name}' is not on this machine{places} and downloads are off.",
            f"{others}, give the path of its folder, or allow downloads: --allow-downloads on the command line, or start ComfyUI with "
            "VIDEO_TRAINER_ALLOW_DOWNLOADS=1.",
        )
    return folder / name
