"""Steps measured on an H200 with random weights: LoRA of rank 32 on all layers, batch 1, bf16; seconds and peak GiB.

HunyuanVideo-1.5 (4.98 s, 24.8 GiB) is not among them: its attention had a mask of all pairs then, and has none now.

Uncompiled: tests/benchmarks/families.py, full checkpointing. OWN: tests/benchmarks/step.py. CHOSEN: the planner's choices in the lines
of tests/acceptance/speed_memory.py, and settings of tests/benchmarks/plan.py; batches that are split by the example.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.benchmarks.full_size import FULL, sized
from tests.benchmarks.settings import choices_of, words_of
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
        return " ".join([self.name, *map(str, self.size or ()), words_of(self.choices)])


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
PRODUCTS, TINY = "fp8 products compiled", (17, 512, 512)
CHOSEN = [
    Measured(name, seconds, gib, choices_of(setting), size)
    for name, size, setting, seconds, gib in (
        ("Wan 2.1 14B", SHORT, "bf16 compiled light", 2.58, 94.3),
        ("Wan 2.1 14B", SHORT, f"{PRODUCTS} light", 2.13, 80.8),
        ("Wan 2.1 14B", None, f"{PRODUCTS} selective lighter 0.55", 8.2, 118.2),
        ("Wan 2.1 14B", None, "bf16 compiled selective swap 0.75", 9.84, 56.2),
        ("Wan 2.1 14B", None, "bf16 compiled offloaded swap 0.75", 11.95, 20.9),
        ("Wan 2.1 14B", None, "bf16 eager offloaded swap 0.75", 14.32, 22.1),
        ("Wan 2.1 14B", (33, 768, 768), "bf16 compiled selective lighter 0.925", 35.04 / 8, 121.0),
        ("Wan 2.1 14B", (33, 768, 768), "bf16 compiled full lighter 0.025", 43.85 / 8, 44.6),
        ("Wan 2.1 14B", (81, 512, 512), "bf16 compiled selective lighter 0.975", 4.65, 127.3),
        ("Wan 2.1 14B", (81, 512, 512), "bf16 compiled offloaded swap 0.875", 6.31, 14.1),
        ("Wan 2.1 14B", TINY, "bf16 compiled off", 2.69 / 4, 70.3),
        ("Wan 2.1 14B", TINY, "int8 eager full swap 0.5", 1.61, 13.1),
        ("Wan 2.1 14B", FEWEST, "nf4 eager full", 1.06, 10.4),
        ("Wan 2.1 1.3B", None, "bf16 compiled selective", 1.94, 16.3),
        ("Wan 2.1 1.3B", None, "bf16 compiled off", 1.86, 80.7),
        ("Wan 2.1 1.3B", SHORT, "bf16 eager selective", 1.04, 8.5),
        ("HunyuanVideo", None, "bf16 compiled light", 3.23, 93.9),
        ("HunyuanVideo", None, f"{PRODUCTS} light", 2.89, 82.4),
        ("HunyuanVideo", SHORT, "bf16 compiled selective", 2.1, 38.1),
        ("HunyuanVideo", SHORT, "fp8 eager full", 3.7, 21.8),
        ("FramePack", None, "bf16 compiled light", 3.0, 91.1),
        ("FramePack", None, f"{PRODUCTS} light", 2.67, 79.7),
        ("FramePack", None, "bf16 compiled offloaded swap 1.0", 4.01, 7.9),
        ("CogVideoX-5B", None, "bf16 compiled off", 2.13, 94.8),
        ("CogVideoX-5B", None, f"{PRODUCTS} off", 1.93, 89.2),
        ("LTX-Video 2B", None, "bf16 compiled full", 0.25, 6.0),
        ("LTX-Video 2B", None, "bf16 compiled off", 0.2, 19.2),
        ("LTX-Video 2B", None, "fp8 compiled off", 0.19, 20.5),
    )
]
STEPS = [
    *OWN,
    *CHOSEN,
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
