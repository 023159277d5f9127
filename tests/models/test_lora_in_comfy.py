"""ComfyUI's own reader of LoRA, on the names that it gives every model's layers, makes of our files what we mean."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.adapters.loras import added, fused_family, random_lora
from tests.models.core import core
from tests.tiny import ALL, Tiny
from trainer.adapters.file import save_lora
from trainer.models import open_model
from trainer.models.key_tensors import to_comfy


@pytest.fixture(scope="module")
def comfy() -> Iterator[Any]:
    with core("lora") as package:
        yield package


@pytest.mark.parametrize("tiny", [*ALL, "fused"], ids=str)
def test_core_adds_what_we_mean(comfy: Any, tmp_path: Path, tiny: Tiny | str) -> None:
    """In ComfyUI's names and kohya's: 0 unmatched keys, and the weights that the LoRA of its modules adds."""
    family: Any = open_model(tiny.write(tmp_path / "tiny")) if isinstance(tiny, Tiny) else fused_family()
    weights = random_lora(family)
    whole = {module for name in weights.pairs for module in family.keys.place(name).modules}  # of fused layers all parts
    zeros = {f"{name}.weight": torch.zeros(shape) for name, shape in family.layer_shapes.items() if name in whole}
    target = to_comfy(family.keys, zeros)
    expected = to_comfy(family.keys, {**zeros, **{f"{name}.weight": tensor.float() for name, tensor in added(weights).items()}})
    names = {}
    for key in target:
        module = key.removesuffix(".weight")
        names |= {f"diffusion_model.{module}": key, f"lora_unet_{module.replace('.', '_')}": key}  # core's maps of any model
    for convention in ("comfyui", "kohya"):
        file = tmp_path / f"{convention}.safetensors"
        save_lora(weights, family, file, {}, convention)  # type: ignore[arg-type]
        tensors = load_file(file)
        patches = comfy.lora.load_lora(tensors, names, log_missing=True)
        assert patches.keys() == target.keys()
        assert len(tensors) == len(patches) * (2 if convention == "comfyui" and family.spec.folds_alpha else 3)
        for key, patch in patches.items():
            made = comfy.lora.calculate_weight([(1.0, patch, 1.0, None, None)], target[key].clone(), key)
            assert (made - expected[key]).norm() <= 1e-5 * expected[key].norm(), key
