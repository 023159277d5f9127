"""Blocks that are compiled serve every bucket: none falls back to eager, whatever the number of shapes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from tests.tiny.wan import write_tiny_wan
from trainer.adapters.lora import Lora
from trainer.events import EventLog, Silent
from trainer.job import AdapterSettings
from trainer.memory.assembly import Assembly
from trainer.memory.choices import Choices
from trainer.models import open_model

SHAPES = [  # latent frames, height and width: with ones, equals and multiples, which compilers like to tell apart
    (1, 8, 8), (2, 8, 8), (3, 8, 8), (2, 8, 12), (2, 12, 8), (4, 16, 8), (5, 8, 8), (3, 4, 4), (2, 16, 16), (1, 16, 8), (6, 8, 8), (7, 4, 8)
]  # fmt: skip
GRAPHS = 12  # of twelve shapes; eight when this was written, two for each of four kinds


def test_twelve_shapes_need_few_graphs_and_no_fallback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda forward: compile(forward, backend="aot_eager", fullgraph=True))
    family = open_model(write_tiny_wan(tmp_path))
    transformer = family.load_transformer(torch.float32)
    lora = Lora.attach(transformer, family.spec, AdapterSettings(rank=4), seed=0)
    generator = torch.Generator().manual_seed(1)
    for parameter in lora.parameters():
        parameter.data.normal_(0, 0.05, generator=generator)

    def gradients() -> list[list[torch.Tensor]]:
        found = []
        for shape in SHAPES:
            x = torch.randn(1, 16, *shape, generator=torch.Generator().manual_seed(shape[1]))
            inputs = {"hidden_states": x, "timestep": torch.tensor([500.0]), "encoder_hidden_states": torch.ones(1, 8, 16)}
            transformer(**inputs, return_dict=False)[0].square().mean().backward()
            found.append([parameter.grad for parameter in lora.parameters() if parameter.grad is not None])
            for parameter in lora.parameters():
                parameter.grad = None
        return found

    plain = gradients()
    counters.clear()
    Assembly(transformer, Choices(checkpointing="selective", compile=True), torch.device("cpu"), EventLog(Silent()))
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        compiled = gradients()
    for ours, theirs in zip(compiled, plain, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert counters["stats"]["unique_graphs"] <= GRAPHS and not counters["graph_break"]
