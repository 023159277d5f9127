"""The alpha that PEFT and diffusers keep outside the tensors: in a file's metadata, or in adapter_config.json beside it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import fail
from .names import bare

METADATA = ("lora_adapter_metadata", "adapter_config")  # diffusers' (LORA_ADAPTER_METADATA_KEY in lora_base.py), and PEFT's by its name
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"  # PEFT's two files
CURE = "Export the LoRA again without it, or merge it into the model."


@dataclass(frozen=True)
class PeftConfig:
    """Alpha by layer as PEFT's LoraConfig has it; without one, alpha is the rank."""

    alpha: float | None = None
    patterns: Mapping[str, float] = field(default_factory=dict)  # a module's name or the end of it -> its alpha
    by_root: bool = False  # rsLoRA: the scale is alpha / sqrt(rank)

    @classmethod
    def of(cls, file: Path, metadata: Mapping[str, str]) -> PeftConfig:
        """That of a LoRA file; raises UserError for one that cannot be read, or that tells of more than plain LoRA."""
        where, raw = _found(file, metadata)
        if raw is None:
            return cls()
        values = {bare(name)[0]: value for name, value in raw.items()}
        if values.get("use_dora"):
            raise fail(where, "says that this is a DoRA, and only plain LoRA can be read.", CURE)
        patterns = values.get("alpha_pattern") or {}
        try:
            alpha = None if values.get("lora_alpha") is None else _positive(values["lora_alpha"])
            patterns = {_module(name): _positive(value) for name, value in patterns.items()}
        except (TypeError, ValueError, AttributeError):
            found = f"has lora_alpha {values.get('lora_alpha')!r} and alpha_pattern {patterns!r:.200}: a number above zero "
            found += "is needed, for layers by their names."
            raise fail(where, found, CURE) from None
        return cls(alpha, patterns, bool(values.get("use_rslora")))

    def alpha_of(self, names: Sequence[str], rank: int) -> float:
        """Alpha of a layer by the file's name for it, else by others that it has: what is divided by the rank."""
        modules = [bare(name)[0] for name in names]
        own = (alpha for module in modules for end, alpha in self.patterns.items() if f".{module}".endswith(f".{end}"))
        alpha = next(own, self.alpha)
        if alpha is None:
            return float(rank)
        return alpha * math.sqrt(rank) if self.by_root else alpha


def _found(file: Path, metadata: Mapping[str, str]) -> tuple[str, dict[str, Any] | None]:
    """The configuration, and what errors call it."""
    for name in METADATA:
        if name in metadata:
            return f"{file}, {name}", _parsed(metadata[name], f"{file}, {name}")
    beside = file.with_name(CONFIG)
    if file.name == WEIGHTS and beside.is_file():
        return str(beside), _parsed(beside.read_bytes(), str(beside))
    return str(file), None


def _parsed(text: str | bytes, where: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise fail(where, "is not a JSON object.", "Export the LoRA again.")
    return parsed


def _module(pattern: str) -> str:
    """The module that a pattern names; raises ValueError for one that names several."""
    name = pattern.replace("\\.", ".").removeprefix("^")
    if re.search(r"[*+?()|\[\]{}^$\\]", name):
        raise ValueError(pattern)
    return name


def _positive(value: object) -> float:
    """A number above zero; raises ValueError for others."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ValueError(value)
    return float(value)
