"""Steps measured on an H200 with random weights: LoRA of rank 32 on all layers, batch 1, bf16; seconds and peak GiB.

HunyuanVideo-1.5 (4.98 s, 24.8 GiB) is not among them: its attention had a mask of all pairs then, and has none now.

Uncompiled: tests/benchmarks/families.py, full checkpointing. OWN: tests/benchmarks/step.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.benchmarks.full_size import FULL, sized
from trainer.memory.choices import Choices
from trainer.memory.rehearsal import Shapes
from trainer.models import known_models
from trainer.models.base import ModelFamily

VARIANTS = {
    "Wan 2.1 14B": "wan t2v-14b", "Wan 2.1 1.3B": "wan t2v-1.3b", "Wan 2.2 5B": "wan ti2v-5b", "LTX-Video 2B": "ltx_video 2b-0.9",
    "CogVideoX-5B": "cogvideox 5b-t2v", "HunyuanVideo": "hunyuan_video t2v", "FramePack": "framepack i2v",
    "HunyuanVideo-1.5": "hunyuan_video_15 t2v-480p", "Mochi 1": "mochi 1-preview", "HiDream-I1": "hidream i1-full",
}  # fmt: skip
COMPILED = Choices(checkpointing="selective", compile=True)
FP8 = Choices(weights="fp8", checkpointing="selective", compile=True, fp8_products=True)


@dataclass(frozen=True)
class Measured:
    name: str
    seconds: float
    gib: float
    choices: Choices = field(default_factory=Choices)
    size: tuple[int, int, int] | None = None

    def __str__(self) -> str:
        way = [self.choices.weights, self.choices.told_checkpointing, *(["compiled"] if self.choices.compile else [])]
        return " ".join([self.name, *map(str, self.size or ()), *way])


SHORT, FEW, FEWEST = (33, 480, 832), (17, 320, 512), (9, 384, 384)
OWN = [
    Measured("Wan 2.1 14B", 9.76, 74.6, COMPILED),
    Measured("Wan 2.1 14B", 8.38, 61.1, FP8),
    Measured("Wan 2.1 14B", 2.89, 48.3, COMPILED, SHORT),
    Measured("Wan 2.1 14B", 2.33, 35.2, FP8, SHORT),
    Measured("Wan 2.1 14B", 9.42, 126.7, replace(COMPILED, lighter=0.5)),
    Measured("Wan 2.1 14B", 0.36, 18.1, FP8, FEWEST),
    Measured("Wan 2.1 1.3B", 0.17, 4.5, COMPILED, FEW),
    Measured("Wan 2.1 1.3B", 0.30, 3.3, FP8, FEW),
    Measured("Wan 2.1 1.3B", 0.46, 3.9, size=FEW),
]
STEPS = [
    *OWN,
    Measured("Wan 2.1 14B", 13.47, 51.2),
    Measured("Wan 2.1 1.3B", 2.81, 10.1),
    Measured("Wan 2.2 5B", 4.76, 24.4),
    Measured("HunyuanVideo", 6.55, 36.8),
    Measured("FramePack", 5.08, 36.4),
    Measured("LTX-Video 2B", 0.43, 5.7),
    Measured("CogVideoX-5B", 3.74, 19.1),
    Measured("Mochi 1", 2.33, 26.2),
    Measured("HiDream-I1", 2.06, 37.3),
    Measured("Wan 2.1 14B", 12.38, 38.2, Choices(weights="fp8")),
    Measured("Wan 2.1 14B", 4.3, 39.7, size=SHORT),
]


def family_of(name: str) -> ModelFamily:
    """The model of a row, without files."""
    wanted = VARIANTS[name]
    return next(family for family in known_models(wanted.split()[0]) if family.files.name == wanted)


def shapes_of(name: str, size: tuple[int, int, int] | None) -> Shapes:
    """What the benchmark gives the model."""
    full, family = FULL[name], family_of(name)
    latents = family.spec.latent_shape(*(size or full.size))
    with FakeTensorMode():
        given = {key: sized(shape, latents) for key, shape in full.given.items()}
        whole: dict[str, Any] = {key: torch.empty(shape) for key, shape in {"latents": latents, **given}.items()}
        encoding = {key: tuple(tensor.shape) for key, tensor in family.section(whole, 0).items()}
    return Shapes(encoding, full.text)
