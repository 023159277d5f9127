"""A tiny model of a family and a few clips that it has encoded, for tests of every family."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from tests.data.footage import scene
from tests.data.synthetic import Watcher, watched, write_clip
from tests.tiny import Tiny
from trainer.adapters.lora import Lora
from trainer.components import Components
from trainer.compute import Compute
from trainer.data.cache import TensorCache
from trainer.data.dataset import TrainingData
from trainer.data.prepare import prepare_dataset
from trainer.data.sampler import Sampler
from trainer.events import EventLog, Silent
from trainer.experts import trained_experts
from trainer.job import Bucket, CaptionSettings, ComputeSettings, DatasetSettings, TrainingJob, VideoFolder
from trainer.memory.assembly import Assembly
from trainer.memory.choices import settled
from trainer.models import open_model
from trainer.models.base import ModelFamily
from trainer.objectives.flow_matching import FlowMatching
from trainer.optim import make_optimizer
from trainer.step import TrainState


@dataclass
class World:
    """A model, and what it makes of three clips of one length and two of another."""

    tiny: Tiny
    family: ModelFamily
    data: TrainingData
    one: TrainingData  # the first clip alone

    def job(self, **parts: object) -> TrainingJob:
        return TrainingJob.parse({"compute": {"device": "cpu", "dtype": "fp32"}, **parts})

    def training(self, job: TrainingJob, data: TrainingData | None = None, dtype: torch.dtype = torch.float32, start: float = 0.0):
        """The state, objective and LoRA of a run that trains the model's first expert."""
        expert = trained_experts(self.family.spec, job.model.expert)[0]
        transformer = self.family.load_transformer(torch.float32, expert.part).to(dtype)
        lora = Lora.attach(transformer, self.family.spec, job.adapter, seed=0)
        lora.train(True)
        if job.memory.gradient_checkpointing != "off":
            choices, dropout = settled(job.memory, job.compute), job.adapter.dropout > 0
            Assembly(transformer, choices, torch.device("cpu"), EventLog(Silent()), random=dropout)
        generator = torch.Generator().manual_seed(3)
        for parameter in lora.parameters():
            if start:
                parameter.data = parameter.data.to(dtype).normal_(0, start, generator=generator)
        data = data or self.data
        sampler = Sampler(data, job.schedule.batch_size, job.schedule.accumulation, 0)
        objective = FlowMatching(job, self.family, data, sampler, torch.device("cpu"))
        state = TrainState(transformer, lora.parameters(), make_optimizer(lora.parameters(), job.optimizer), Compute(job.compute).scaler())
        return state, objective, lora


def made_world(tiny: Tiny, folder: Path) -> World:
    """Writes the model and the clips into a folder and encodes them."""
    family = open_model(tiny.write(folder / "model"))
    rate, lengths = int(family.spec.fps), [tiny.sizes[0]] * 3 + [tiny.sizes[1]] * 2
    for number, (frames, height, width) in enumerate(lengths):
        write_clip(folder / f"clips/{number}.mp4", [scene(n + 30 * number, height, width) for n in range(frames)], rate=rate)
        (folder / f"clips/{number}.txt").write_text(f"a caption of clip {number}", encoding="utf-8")
    (folder / "one").mkdir()
    for name in ("0.mp4", "0.txt"):
        (folder / "one" / name).write_bytes((folder / "clips" / name).read_bytes())
    log = watched(Watcher())
    components = Components(family, Compute(ComputeSettings(device="cpu", dtype="fp32")), log)
    buckets = [Bucket(frames=frames, height=height, width=width) for frames, height, width in dict.fromkeys(tiny.sizes)]

    def prepared(place: str) -> TrainingData:
        settings = DatasetSettings(sources=[VideoFolder(folder=str(folder / place))], buckets=buckets)
        return prepare_dataset(settings, CaptionSettings(), family, TensorCache(folder / "cache"), components, log)

    return World(tiny, family, prepared("clips"), prepared("one"))
