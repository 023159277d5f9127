"""Models and datasets of the Hugging Face hub: local copies first, downloads only where they are allowed."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from .errors import fail
from .files import kind_of

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def snapshot(
    name: str, patterns: Sequence[str], folder: Path | None, allowed: bool, where: str, kind: Literal["model", "dataset"] = "model",
    looked: Sequence[Path] = (),
) -> Path:  # fmt: skip
    """The folder of a hub repository's files that match `patterns`, downloaded into `folder` if that is `allowed`.

    Raises UserError, of the setting `where`, if it is not on this machine and cannot or must not be downloaded; it names the
    folders that were `looked` into before.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = list(patterns)
    target = folder / name if folder else None
    if target is not None and kind_of(target) == "folder":
        return target
    try:
        return Path(snapshot_download(name, repo_type=kind, allow_patterns=patterns, local_files_only=True))
    except (LocalEntryNotFoundError, FileNotFoundError):
        pass
    except HFValidationError as error:
        raise fail(where, f"'{name[:200]}' is no hub id: {str(error).partition(': ')[0]}.", "Give the id as the hub shows it.") from None
    if target is None or not allowed:
        places = f" (looked in: {', '.join(map(str, looked))}, and the Hugging Face cache)" if looked else ""
        others = "Download it into one of these folders or one that --models names on the command line" if looked else "Download it"
        raise fail(
            where,
            f"'{name}' is not on this machine{places} and downloads are off.",
            f"{others}, give the path of its folder, or allow downloads: --allow-downloads on the command line, or start ComfyUI with "
            "VIDEO_TRAINER_ALLOW_DOWNLOADS=1.",
        )
    unfinished = target.with_name(f".{target.name}.part")
    try:
        snapshot_download(name, repo_type=kind, allow_patterns=patterns, local_dir=unfinished)
        os.replace(unfinished, target)
    except (HfHubHTTPError, OSError) as error:
        cure = "Check the name and the connection; running again goes on where it stopped."
        raise fail(where, f"'{name}' could not be downloaded: {error}.", cure) from None
    return target
