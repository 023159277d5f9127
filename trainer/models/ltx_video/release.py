"""Which release of LTX-Video some files are of, and what differs between releases."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import ModelFiles

SIZES = {(28, 2048): "2b", (48, 4096): "13b"}  # (layers, width); any other size is "small": test models
NEWER = "LTXVideo095DownBlock3D"  # a block that the VAE has from 0.9.5 on
SHIFTS = {"base_image_seq_len": 1024, "max_image_seq_len": 4096, "base_shift": 0.95, "max_shift": 2.05}  # the first release's scheduler


@dataclass(frozen=True)
class Release:
    """From 0.9.5 on (`newer`), time is counted causally, and captions are longer and their padding masked in the encoder too."""

    size: str  # a value of SIZES, or "small"
    number: str
    newer: bool
    distilled: bool  # to a few steps, without guidance
    shifts: tuple[float, float, float, float]  # as in SHIFTS

    @classmethod
    def of(cls, files: ModelFiles) -> Release:
        """The release, by the configurations of transformer, VAE and scheduler; nothing else tells those of one size apart."""
        transformer, vae, scheduler = map(files.config, ("transformer", "vae", "scheduler"))
        width = transformer.get("num_attention_heads", 32) * transformer.get("attention_head_dim", 64)
        size, newer = SIZES.get((transformer.get("num_layers", 28), width), "small"), NEWER in vae.get("down_block_types", [])
        number = ("0.9.7" if size == "13b" else "0.9.5") if newer else "0.9.1" if vae.get("timestep_conditioning") else "0.9"
        own = scheduler if scheduler.get("use_dynamic_shifting") else {}  # from 0.9.5 on the scheduler's values are not in use
        few, many, low, high = (own.get(name, value) for name, value in SHIFTS.items())
        return cls(size, number, newer, _distilled(files.name, transformer, scheduler), (few, many, low, high))

    @property
    def variant(self) -> str:
        """Such as 2b-0.9.5 or 13b-0.9.7-distilled."""
        return f"{self.size}-{self.number}" + ("-distilled" if self.distilled else "")

    def shift(self, tokens: int) -> float:
        """Exp(mu), mu linear in the number of tokens: LTXPipeline's calculate_shift and its scheduler's exponential time shift."""
        few, many, low, high = self.shifts
        return math.exp(low + (high - low) * (tokens - few) / (many - few))


def _distilled(name: str, transformer: dict[str, Any], scheduler: dict[str, Any]) -> bool:
    """Whether the base is distilled to a few steps: it lists them, is sampled with fresh noise at each, or is called so."""
    names = (Path(name).name, str(transformer.get("_name_or_path", "")))
    marked = transformer.get("allowed_inference_steps") or scheduler.get("stochastic_sampling")
    return bool(marked) or any("distilled" in name.lower() for name in names)
