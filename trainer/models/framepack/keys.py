"""Names of FramePack's layers in LoRA files: those of HunyuanVideo's original release.

ComfyUI's core has no FramePack. ComfyUI-FramePackWrapper gives every LoRA file to diffusers' converter of HunyuanVideo LoRAs
(lora_conversion_utils.py), which reads these names and no alpha.
"""

from __future__ import annotations

import re

from ..hunyuan_video.keys import RULES, original
from ..key_map import KeyMap, Rule

_LAYERS = [rule for rule in RULES if re.match(r"(double|single)_blocks\.", rule.comfy) and "norm" not in rule.comfy]
_OWN = [
    Rule(module, module) for rule in _LAYERS for module in rule.modules
]  # FramePack's code, as musubi-tuner has it, has diffusers' names
LORA = KeyMap([original(rule) for rule in _LAYERS], original=_OWN)
