"""ComfyUI's folders: where runs write and models lie, what a workflow may read and write, and pictures in the temp folder."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import folder_paths

from ...trainer.errors import fail
from ...trainer.files import lies_in

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from ...trainer.run import Places


def places() -> Places:
    """Where runs may write and models lie: ComfyUI's output folder and models/diffusers; hub downloads only if allowed."""
    from ...trainer.run import Places

    models = tuple(map(Path, folder_paths.get_folder_paths("diffusers")))
    downloads = models[0] if models and downloads_allowed() else None
    return Places.under(Path(folder_paths.get_output_directory()), models, downloads)


def downloads_allowed() -> bool:
    """Whether whoever started ComfyUI allows hub downloads; a workflow cannot."""
    return os.environ.get("VIDEO_TRAINER_ALLOW_DOWNLOADS", "") not in ("", "0")


def input_path(text: str) -> Path:
    """A file or folder as the user wrote it: absolute, or relative to ComfyUI's input folder."""
    from ...trainer.data.sources.paths import folder_path

    return Path(folder_paths.get_input_directory()) / folder_path(text)


def own_paths(text: str) -> list[Path]:
    """What a user's words may mean: an absolute path, or the same place in ComfyUI's input folder and in its output folder."""
    from ...trainer.data.sources.paths import folder_path

    return list(dict.fromkeys(root / folder_path(text) for root in own_folders()))


def output_folder(text: str) -> Path:
    """A folder below ComfyUI's output folder; raises UserError for any other, wherever links lead."""
    from ...trainer.data.sources.paths import folder_path

    root = Path(folder_paths.get_output_directory()).resolve()
    try:
        folder = (root / folder_path(text)).resolve()
    except (OSError, ValueError, RuntimeError) as error:  # no name that a folder could have, or a link to itself
        raise fail("folder", f"'{text}' cannot be a folder: {error}.", "Give a name such as parquet/my_clips.") from None
    if root not in folder.parents:
        raise fail("folder", f"'{text}' does not lie inside ComfyUI's output folder.", "Give a name such as parquet/my_clips.")
    return folder


def own_folders() -> tuple[Path, Path]:
    """ComfyUI's input and output folders, the only ones that a workflow may write into."""
    return Path(folder_paths.get_input_directory()), Path(folder_paths.get_output_directory())


def is_ours(path: Path) -> bool:
    """Whether a path lies inside ComfyUI's input or output folder, wherever links lead."""
    return lies_in(path, own_folders())


def below_output(path: Path) -> str:
    """A path inside ComfyUI's output folder as the browser asks for it: relative, with forward slashes."""
    return path.relative_to(folder_paths.get_output_directory()).as_posix()


def save_temp_image(image: Tensor) -> Path:
    """Writes the first image [B, H, W, 3] in 0..1 to the temp folder."""
    return save_temp_pixels((image[0, ..., :3].clamp(0, 1) * 255).round().byte().cpu().numpy())


def save_temp_pixels(pixels: np.ndarray) -> Path:
    """Writes a picture [H, W, 3] uint8 to the temp folder, named by its content so that the same picture is the same file."""
    from PIL import Image

    name = hashlib.sha256(pixels.tobytes() + str(pixels.shape).encode()).hexdigest()[:16]
    file = Path(folder_paths.get_temp_directory()) / f"video_trainer_{name}.png"
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file)
    return file
