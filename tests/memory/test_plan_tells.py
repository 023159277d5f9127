"""What a plan tells of: precision, samples and host memory that are too much, and a LoRA that is continued."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tiny.wan import write_tiny_wan
from trainer.adapters.file import save_lora
from trainer.adapters.weights import LoraPair, LoraWeights
from trainer.errors import UserError
from trainer.job import TrainingJob
from trainer.memory.card import CARDS
from trainer.memory.examples import planned_micros
from trainer.memory.plan import Plan, make_plan
from trainer.memory.planned_adapter import planned_adapter
from trainer.models import known_models, open_model

PLAIN = {"weights": "unquantized", "gradient_checkpointing": "full", "layer_offload_fraction": 0.0}


def planned(card: str, dtype: torch.dtype = torch.bfloat16, host: float = 100, variant: str = "t2v-1.3b", **settings: Any) -> Plan:
    job = TrainingJob.parse({"dataset": {"buckets": ["9x256x256"]}, **settings})
    family = next(known for known in known_models("wan") if known.spec.variant == variant)
    micros, size = planned_micros(job, family)
    return make_plan(job, family, micros, size, CARDS[card], dtype, host=host)


@pytest.mark.parametrize(("card", "times"), [("RTX 4090", 1.6), ("H100", 6)])
def test_steps_in_float32_take_as_long_as_its_products(card: str, times: float) -> None:
    """They were planned at the speed of bf16, and a run was then told to lower memory.fit_into."""
    given = {"dataset": {"buckets": ["33x480x832"]}, "memory": PLAIN, "compute": {"compile": "off"}}
    half, full = (planned(card, dtype, **given).step_seconds for dtype in (torch.bfloat16, torch.float32))
    assert full > times * half


def test_samples_that_cannot_fit_are_told() -> None:
    advice = {}
    for size in ("9x256x256", "241x1024x1024"):
        advice[size] = planned("RTX 3060", samples={"prompts": [{"prompt": "a boat", "size": size}]}).advice
    assert any("drawing samples takes more than there is" in text for text in advice["241x1024x1024"])
    assert not any("drawing samples" in text for text in advice["9x256x256"])


def test_host_memory_that_is_too_little_is_spared_or_told() -> None:
    """The expert whose turn it is not lies there."""
    spared = planned("RTX 4090", host=12, variant="t2v-a14b")
    assert spared.choices.weights == "nf4" and not any("host memory" in text for text in spared.advice)
    told = planned("H200", host=12, variant="t2v-a14b", memory={"weights": "unquantized"})
    assert any("GB of host memory are needed and 10.8 may be taken" in text for text in told.advice)


@pytest.mark.parametrize(("share", "rank"), [(1.0, 48), (0.5, 24)])
def test_a_continued_lora_is_planned_as_it_is(share: float, rank: int, tmp_path: Path) -> None:
    model = write_tiny_wan(tmp_path / "model")
    family = open_model(model)
    job = TrainingJob.parse({"adapter": {"rank": 4, "continue_from": str(tmp_path / "lora.safetensors")}})
    assert planned_adapter(job, family).rank == 4, "no file is needed to go on from a checkpoint"
    shapes = list(family.layer_shapes.items())
    assert len({shape for _, shape in shapes}) > 1
    blocks = [(name, shape) for name, shape in shapes if name.startswith("blocks.")]
    taken = blocks if share == 1 else [pair for pair in blocks if pair[0].startswith("blocks.0.")]
    pairs = {name: LoraPair(torch.ones(48, columns), torch.ones(rows, 48), 48.0) for name, (rows, columns) in taken}
    save_lora(LoraWeights(pairs), family, tmp_path / "lora.safetensors", {})
    assert planned_adapter(job, family).rank == rank
    (tmp_path / "lora.safetensors").write_bytes(b"none")
    with pytest.raises(UserError, match=r"lora\.safetensors"):
        planned_adapter(job, family)
