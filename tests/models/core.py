"""ComfyUI's own classes, opened as its loaders open a file: recognised by its keys, LoRA files applied through its key map."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import find_comfyui


@contextmanager
def core(*modules: str) -> Iterator[Any]:
    """The package `comfy` with these of its modules, computing on the CPU; skips the test if there is no ComfyUI."""
    path = find_comfyui()
    if path is None:
        pytest.skip("no ComfyUI found: set COMFYUI_PATH")
    sys.path.insert(0, str(path))
    try:
        import_module("comfy.cli_args").args.cpu = True
        for name in modules:
            import_module(f"comfy.{name}")
        yield sys.modules["comfy"]
    finally:
        sys.path.remove(str(path))


def load_model(comfy: Any, file: Path) -> Any:
    """What UNETLoader makes of a diffusion model's file, in float32: a ModelPatcher; every key of the file must be used."""
    state, metadata = comfy.utils.load_torch_file(str(file), return_metadata=True)
    config = comfy.model_detection.model_config_from_unet(state, "", metadata=metadata)
    config.set_inference_dtype(torch.float32, None)
    model = config.get_model(dict(state), "", device="cpu")
    missing, unexpected = model.diffusion_model.load_state_dict(state, strict=False)
    assert not missing and not unexpected
    return comfy.model_patcher.ModelPatcher(model.float(), torch.device("cpu"), torch.device("cpu"))


def with_lora(comfy: Any, patcher: Any, file: Path) -> Any:
    """The model with a LoRA file as LoraLoaderModelOnly applies it; all layers of the file must be matched."""
    keys = comfy.lora.model_lora_keys_unet(patcher.model, {})
    tensors = comfy.lora_convert.convert_lora(comfy.utils.load_torch_file(str(file)))
    loaded = comfy.lora.load_lora(tensors, keys, log_missing=True)
    assert len(loaded) * 3 == len(tensors)
    patched = patcher.clone()
    assert set(patched.add_patches(loaded, 1.0)) == set(loaded)
    patched.patch_model(torch.device("cpu"))
    return patched
