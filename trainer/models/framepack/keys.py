"""Names of FramePack's layers in LoRA files: those of HunyuanVideo's original release.

ComfyUI's core has no FramePack. ComfyUI-FramePackWrapper gives every LoRA file to diffusers' converter of HunyuanVideo LoRAs
(lora_conversion_utils.py), which reads these names and no alpha.
"""

from __future__ import annotations

import re

from ..hunyuan_video.keys import RULES
from ..key_map import KeyMap, Rule

_ORIGINAL = {  # what ComfyUI changed of the original names
    r"_attn\.(qkv|proj)$": r"_attn_\1",
    r"_mod\.lin$": "_mod.linear",
    r"_mlp\.0$": "_mlp.fc1",
    r"_mlp\.2$": "_mlp.fc2",
    r"\.modulation\.lin$": ".modulation.linear",
}


def _original(rule: Rule) -> Rule:
    name = rule.comfy
    for pattern, replacement in _ORIGINAL.items():
        name = re.sub(pattern, replacement, name)
    return Rule(rule.diffusers, name, rule.swapped)


_LAYERS = [rule for rule in RULES if re.match(r"(double|single)_blocks\.", rule.comfy) and "norm" not in rule.comfy]
LORA = KeyMap([_original(rule) for rule in _LAYERS])
