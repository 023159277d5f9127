"""Models and LoRA files that ComfyUI lists, and what core's own loaders make of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import comfy.utils
import folder_paths

from ...trainer.errors import fail

if TYPE_CHECKING:
    from torch import Tensor


def model_names() -> list[str]:
    """Diffusers folders in models/diffusers, by name or owner/name."""
    roots = [Path(root) for root in folder_paths.get_folder_paths("diffusers")]
    found = ((root, index) for root in roots for depth in ("*", "*/*") for index in root.glob(f"{depth}/model_index.json"))
    return sorted({index.parent.relative_to(root).as_posix() for root, index in found})


def file_names(*kinds: str) -> list[str]:
    """Files of tensors that ComfyUI lists in these folders, and GGUF files of diffusion models, which core does not list."""
    listed = {name for kind in kinds for name in folder_paths.get_filename_list(kind) if name.endswith((".safetensors", ".sft"))}
    roots = map(Path, folder_paths.get_folder_paths("diffusion_models")) if "diffusion_models" in kinds else ()
    return sorted(listed | {file.relative_to(root).as_posix() for root in roots for file in root.rglob("*.gguf")})


def find_file(name: str, *kinds: str) -> Path | None:
    """The path of a listed file in the first of these folders that has it; None if it is gone."""
    found = (folder_paths.get_full_path(kind, name) for kind in kinds)
    return next((Path(path) for path in found if path), None)


def comfy_folder() -> Path:
    """ComfyUI's own package, which holds tokenizers."""
    return Path(comfy.utils.__file__).parent


def lora_names() -> list[str]:
    """LoRA files that ComfyUI lists."""
    return folder_paths.get_filename_list("loras")


def lora_file(name: str) -> Path:
    """The path of a listed LoRA file; raises FileNotFoundError if it is gone."""
    return Path(folder_paths.get_full_path_or_raise("loras", name))


def output_file(kind: str, name: str) -> Path:
    """output/<kind>/<name>, a folder that ComfyUI's own loaders list for `kind`; raises UserError for a name that leads out of it."""
    folder = Path(folder_paths.get_output_directory()) / kind
    if not (folder / name).resolve().is_relative_to(folder.resolve()):
        raise fail("name", f"'{name}' is not in {folder}.", "Give the name of a file, without folders.")
    return folder / name


def load_diffusion_model(file: Path) -> Any:
    """A core MODEL, loaded as UNETLoader does."""
    import comfy.sd

    return comfy.sd.load_diffusion_model(str(file))


def load_vae(file: Path) -> Any:
    """A core VAE, loaded as VAELoader does."""
    import comfy.sd

    state, metadata = comfy.utils.load_torch_file(str(file), return_metadata=True)
    vae = comfy.sd.VAE(sd=state, metadata=metadata)
    vae.throw_exception_if_invalid()
    return vae


def load_lora(file: Path) -> dict[str, Tensor]:
    """A LoRA's state dict, as core's Load LoRA Model expects."""
    return comfy.utils.load_torch_file(str(file), safe_load=True)
