"""Whose words a LoRA file uses: its keys taken apart, and its layers found among those that a family has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from ..models.key_map import Place, single

if TYPE_CHECKING:
    from ..models.key_map import KeyMap

Convention = Literal["comfyui", "diffusers", "musubi", "kohya"]
LABELS: dict[Convention, str] = {
    "comfyui": "ComfyUI",  # diffusion_model.<ComfyUI's name>, alpha as a tensor
    "diffusers": "diffusers and PEFT",  # transformer.<diffusers' name>, no alpha
    "musubi": "musubi-tuner",  # lora_unet_<the original release's name>, its dots as underscores, alpha as a tensor
    "kohya": "kohya",  # lora_unet_<ComfyUI's name>, the same way
}
HALVES = {"A": "down", "B": "up", "down": "down", "up": "up"}
KEYS = [
    re.compile(pattern)
    for pattern in (
        r"(.+)\.lora_(A|B|down|up)(?:\.[^.]+)?\.weight",  # with or without the adapter's name
        r"(.+)\.lora_(A|B)",
        r"(.+)[._]lora\.(down|up)\.weight",
        r"(.+)\.lora_linear_layer\.(down|up)\.weight",
    )
]
FOREIGN = {  # what is no plain LoRA -> what it is
    r"\.dora_scale$|\.lora_magnitude_vector": "DoRA",
    r"\.hada_": "LoHa",
    r"\.lokr_": "LoKr",
    r"\.oft_|\.rescale$": "OFT",
    r"\.[ab][12]\.weight$": "GLoRA",
    r"\.lora_mid\.": "LoRA of convolutions",
    r"\.(diff|diff_b|set_weight|reshape_weight)$": "weights stored whole beside the LoRA",
    r"\.lora_(A|B|up|down)(\.[^.]+)?\.bias$": "LoRA with biases",
    r"^(base_model\.model\.)?(lora_te|text_encoder|te\d?\.)": "LoRA of a text encoder",
}
DOTTED = ("base_model.model.", "model.", "diffusion_model.", "transformer.", "transformer_2.", "unet.")
FLAT = ("lora_unet_", "lora_transformer_", "lycoris_")


def split_key(key: str) -> tuple[str, str]:
    """A layer's name as the file has it, and "down", "up" or "alpha"; "" for a key of anything else."""
    if key.endswith(".alpha"):
        return key.removesuffix(".alpha"), "alpha"
    for pattern in KEYS:
        if match := pattern.fullmatch(key):
            return match[1], HALVES[match[2]]
    return key, ""


def foreign(keys: Iterable[str]) -> str:
    """What kind of weights that are no plain LoRA are among the keys, with the first of them; empty if none are."""
    for key in keys:
        for pattern, kind in FOREIGN.items():
            if re.search(pattern, key):
                return f"{kind} (such as {key})"
    return ""


def bare(name: str) -> tuple[str, tuple[str, ...]]:
    """A dotted name without what programs put before it, and what that was."""
    before: list[str] = []
    while prefix := next((prefix for prefix in DOTTED if name.startswith(prefix)), ""):
        name = name.removeprefix(prefix)
        before.append(prefix)
    return name, tuple(before)


def find_layer(name: str, keys: KeyMap) -> tuple[Place, Convention]:
    """What a file's layer holds, and in whose words it was named; raises KeyError unless that is one thing only."""
    if prefix := next((prefix for prefix in FLAT if name.startswith(prefix)), ""):
        return keys.original.found_flat(name.removeprefix(prefix).lstrip("_")), "kohya"
    module, before = bare(name)
    for theirs in (True, False) if "diffusion_model." in before else (False, True):
        try:
            if theirs:
                return keys.original.found(module), "comfyui"
            keys.place(module)
            return single(module), "diffusers"
        except KeyError:
            continue
    raise KeyError(name)
