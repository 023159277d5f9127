"""The settings of the optimizer, and how its options are written."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from pydantic import field_validator

from .settings import Settings, setting

OptimizerName = Literal[
    "AdamW", "AdamW 8-bit", "Adafactor", "Lion", "Prodigy", "Schedule-free AdamW", "CAME", "Muon", "StableAdamW", "SGD", "other"
]
OURS = ("params", "lr")  # what no option may set
_OPTION = re.compile(r"""([A-Za-z_]\w*)\s*=\s*(\([^()]*\)|\[[^\[\]]*\]|"[^"]*"|[^\s,;"()\[\]]+)""")
_WORDS = {"true": True, "false": False, "none": None, "null": None}


def option_values(text: str) -> dict[str, Any]:
    """The options in a text such as `eps=1e-6 betas=(0.9, 0.99, 0.999) kahan_sum=false`; raises ValueError for what is none.

    Values are numbers, true, false, none, lists in ( ) or [ ], which come as tuples, and words; spaces, commas and line
    breaks part them.
    """
    if left := _OPTION.sub("", text).strip(" ,;\n\t\r"):
        raise ValueError(f"'{left}' is no option: write name=value, such as eps=1e-6 betas=(0.9, 0.99)")
    found: dict[str, Any] = {}
    for name, value in _OPTION.findall(text):
        if name in OURS:
            raise ValueError(f"{name} is not an option: the rate is set by learning_rate")
        if name in found:
            raise ValueError(f"{name} is given twice")
        found[name] = _value(value)
    return found


def _value(text: str) -> Any:
    if text[0] in "([":
        return tuple(_value(part.strip()) for part in text[1:-1].split(",") if part.strip())
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return float(text)  # .5 and 1. are no JSON
    except ValueError:
        return text


class OptimizerSettings(Settings):
    """The optimizer and its schedule."""

    learning_rate: float = setting(2e-4, "Learning rate", "Step size of the optimizer.", gt=0, le=1, step=1e-6)
    weight_decay: float = setting(0.01, "Weight decay", "Pull of the weights towards zero.", ge=0, le=1, step=0.01, advanced=True)
    beta1: float = setting(
        0.9, "Beta 1", "Memory of the gradient's mean; of Muon and SGD the momentum. Adafactor has none.", ge=0, lt=1, step=0.01,
        advanced=True,
    )  # fmt: skip
    beta2: float = setting(
        0.99, "Beta 2", "Memory of the gradient's size; of Lion that of its mean. Adafactor, Muon and SGD have none.", ge=0, lt=1,
        step=0.001, advanced=True,
    )  # fmt: skip
    max_grad_norm: float = setting(
        1.0, "Gradient clipping", "Largest gradient norm; 0 does not clip.", ge=0, le=1000, step=0.1, advanced=True
    )
    schedule: Literal["constant", "cosine"] = setting("constant", "Schedule", "How the learning rate goes after the warm-up.")
    warmup: int = setting(0, "Warm-up", "Steps over which the learning rate rises to its value.", unit="steps", ge=0, le=100000)
    name: OptimizerName = setting(
        "AdamW", "Optimizer",
        "AdamW: the one to begin with; rate 5e-5 to 5e-4. "
        "AdamW 8-bit: the same with a quarter of the memory, through bitsandbytes, else torchao; same rates. "
        "Adafactor: keeps next to nothing, for large LoRA; same rates. "
        "Lion: half of AdamW's memory, good with large batches; a third to a tenth of its rate, 2e-5 to 1e-4, and 3 to 10 times its decay. "
        "Prodigy: finds the rate by itself, twice AdamW's memory; set the rate to 1. "
        "Schedule-free AdamW: averages the weights instead of lowering the rate, for runs whose length is open; constant schedule, "
        "5e-4 to 3e-3. Samples and LoRA files hold the averaged weights. "
        "CAME: Adafactor's small memory, steadier; 5e-5 to 3e-4. "
        "Muon: evens out the directions of each matrix, often fewer steps; scaled so that AdamW's rates hold. "
        "StableAdamW: clips each update, for losses that spike; AdamW's rates. "
        "SGD: plain momentum, for comparison; 0.001 to 1. "
        "other: any class of pytorch_optimizer.",
    )  # fmt: skip
    other: str = setting(
        "", "Other optimizer", "The name of a class of the package pytorch_optimizer, such as ADOPT or SOAP; used where the optimizer is "
        "other. It takes the learning rate and the weight decay, and all else from its options. It is tried before anything loads; "
        "one that cannot be resumed exactly is told then.", advanced=True,
    )  # fmt: skip
    options: str = setting(
        "", "Options", "Further arguments of the optimizer's class: name=value, such as eps=1e-6 betas=(0.9, 0.99, 0.999).", advanced=True
    )
    lora_plus_ratio: float = setting(
        1.0, "LoRA+ ratio", "How many times the learning rate the LoRA's second matrix (up, B) has of that of its first; 1 is plain LoRA, "
        "16 is LoRA+'s own choice (Hayou et al. 2024), then with a rate some 4 times lower.", ge=0.01, le=1000, step=1, advanced=True,
    )  # fmt: skip
    offload_state: bool = setting(
        False, "Offload state", "Keeps what AdamW remembers in the host's memory and computes its step there, through torchao; nothing on "
        "a CPU. Saves 8 bytes of the card's memory for each trained number.", advanced=True,
    )  # fmt: skip

    @field_validator("options")
    @classmethod
    def _readable(cls, text: str) -> str:
        option_values(text)
        return text
