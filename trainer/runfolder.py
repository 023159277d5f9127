"""What a run leaves on disk: settings, events, atomic checkpoints, samples; and which run a job goes on with."""

from __future__ import annotations

import io
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import __version__
from .adapters.weights import LoraPair, LoraWeights
from .errors import UserError, fail
from .files import write_bytes, write_json
from .job import TrainingJob

if TYPE_CHECKING:
    from torch import Tensor

    from .events import EventLog

MAY_CHANGE = (
    "samples",
    "output",
    "schedule.steps",
    "compute.device",
    "compute.compile",
    "compute.fp8_products",
    "compute.attention",
    "compute.sampling_attention",
    "dataset.dataloader_threads",
    "memory.fit_into",
    "memory.gradient_checkpointing",
    "memory.weights",
    "memory.layer_offload_fraction",
    "memory.vae_slicing",
)  # settings that a continued run may change


@dataclass(frozen=True)
class RunFolder:
    """One run's folder; `id` is unique for ever, the folder's name is for people."""

    path: Path
    id: str
    dataset: str  # fingerprint of the clips and captions it was started with

    @property
    def name(self) -> str:
        """The run's name, which is its folder's."""
        return self.path.name

    @property
    def events(self) -> Path:
        """The event log."""
        return self.path / "events.jsonl"

    @classmethod
    def create(cls, path: Path, dataset: str) -> RunFolder:
        """Makes the folder; raises UserError if that is not possible."""
        run = cls(path, f"{path.name}-{uuid.uuid4().hex[:8]}", dataset)
        about = {"id": run.id, "name": run.name, "version": __version__, "dataset": dataset, "created": time.time()}
        try:
            (path / "checkpoints").mkdir(parents=True)
            (path / "samples").mkdir()
            write_json(path / "run.json", about)
        except OSError as error:
            raise fail(str(path), f"cannot be written: {error}.", "Give the output folder write permission or choose another.") from None
        return run

    @classmethod
    def open(cls, path: Path) -> RunFolder | None:
        """The run in this folder, or None if there is none."""
        try:
            about = json.loads((path / "run.json").read_text(encoding="utf-8"))
            return cls(path, str(about["id"]), str(about["dataset"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    @contextmanager
    def only_here(self) -> Iterator[None]:
        """Holds the run for this process; raises UserError if another one is training it."""
        from filelock import FileLock, Timeout

        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise fail(str(self.path), "is being trained by another process.", "Wait for it, or choose another name.") from None
        try:
            yield
        finally:
            lock.release()

    def write_job(self, job: TrainingJob) -> None:
        """Keeps the settings of the latest start."""
        write_json(self.path / "job.json", job.model_dump(mode="json"))

    def job(self) -> TrainingJob | None:
        """The settings of the latest start; None if they cannot be read by this version."""
        try:
            return TrainingJob.load(self.path / "job.json")
        except UserError:
            return None

    def sample_folder(self, step: int) -> Path:
        """Where the sample videos of a step lie."""
        return self.path / "samples" / step_name(step)

    def forget_samples(self, after: int) -> None:
        """Removes the sample videos of later steps, which are drawn again as training comes there."""
        for folder in (self.path / "samples").glob("step-*"):
            if folder.name > step_name(after):
                shutil.rmtree(folder, ignore_errors=True)

    def checkpoints(self) -> list[int]:
        """Steps of the complete checkpoints, oldest first."""
        folder = self.path / "checkpoints"
        names = [p.name.removeprefix("step-") for p in folder.glob("step-*") if (p / "state.json").is_file()]
        return sorted(int(name) for name in names if name.isdigit())

    def save_checkpoint(self, step: int, weights: dict[str, LoraWeights], state: dict[str, Any], keep: int) -> Path:
        """Writes a checkpoint that is complete or absent, then removes the oldest beyond `keep`; `weights` are by expert."""
        import torch
        from safetensors.torch import save

        final = self.path / "checkpoints" / step_name(step)
        if step in self.checkpoints():
            return final
        beside = final.with_name(f".{final.name}.part")
        try:
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir(parents=True)
            tensors = io.BytesIO()
            torch.save(state, tensors)  # to memory: on a full disk torch and safetensors raise errors of their own
            for expert, own in weights.items():
                halves: dict[str, Tensor] = {}
                for name, pair in own.pairs.items():
                    alpha = torch.tensor(pair.alpha, dtype=torch.float64)
                    halves |= {f"{name}.down": pair.down, f"{name}.up": pair.up, f"{name}.alpha": alpha}
                write_bytes(beside / _adapter_file(expert), save(halves))
            write_bytes(beside / "optimizer.pt", tensors.getvalue())
            write_json(beside / "state.json", {"step": step, "experts": list(weights)})
            shutil.rmtree(final, ignore_errors=True)
            os.replace(beside, final)
        except OSError as error:
            raise fail(
                str(final), f"cannot be written: {error}.", "Free space; the earlier checkpoints are whole, run again to resume."
            ) from None
        for old in self.checkpoints()[:-keep]:
            shutil.rmtree(self.path / "checkpoints" / step_name(old), ignore_errors=True)
        return final

    def newest_checkpoint(self, log: EventLog) -> tuple[int, dict[str, LoraWeights], dict[str, Any]] | None:
        """Step, adapter weights and optimizer state of the newest checkpoint that can be read; damaged ones are set aside, and told."""
        for step in reversed(self.checkpoints()):
            try:
                return step, *self._load_checkpoint(step)
            except MemoryError:
                raise
            except Exception as error:  # whatever the parsers of three formats raise on damaged bytes
                folder = self.path / "checkpoints" / step_name(step)
                aside = folder.with_name(f"damaged-{folder.name}-{uuid.uuid4().hex[:4]}")
                os.replace(folder, aside)
                log.notice(f"The checkpoint of step {step} cannot be read ({error}): training goes on from an earlier one.", str(aside))
        return None

    def _load_checkpoint(self, step: int) -> tuple[dict[str, LoraWeights], dict[str, Any]]:
        import torch
        from safetensors.torch import load

        folder = self.path / "checkpoints" / step_name(step)
        about = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        weights = {}
        for expert in about["experts"]:
            halves = load((folder / _adapter_file(expert)).read_bytes())
            names = [key.removesuffix(".down") for key in halves if key.endswith(".down")]
            pairs = {n: LoraPair(halves[f"{n}.down"], halves[f"{n}.up"], halves[f"{n}.alpha"].item()) for n in names}
            weights[expert] = LoraWeights(pairs)
        return weights, torch.load(folder / "optimizer.pt", weights_only=True, map_location="cpu")


def _adapter_file(expert: str) -> str:
    return f"adapter-{expert}.safetensors" if expert else "adapter.safetensors"


def step_name(step: int) -> str:
    """Folder and file name part of a step, sorting by step."""
    return f"step-{step:06d}"


def open_run(job: TrainingJob, dataset: str, runs: Path, loras: Path) -> tuple[RunFolder, str]:
    """The run that this job starts or goes on with, and why it is not the one of that name, if so.

    A run goes on if settings, clips and model are the same, apart from `MAY_CHANGE` and only towards more steps. A
    name is also taken if LoRA files of that name exist, so that none is ever overwritten.
    """
    reason, number = "", 1
    while True:
        name = job.output.name if number == 1 else f"{job.output.name}-{number}"
        path = runs / name
        if not path.exists() and not (loras / name).exists():
            return RunFolder.create(path, dataset), reason
        run = RunFolder.open(path)
        if job.output.if_exists == "start new":
            reason = reason or "a run of this name exists"
        elif run is not None:
            difference = _difference(run, job, dataset)
            if not difference:
                return run, reason
            reason = reason or difference
        else:
            reason = reason or "there is a folder of this name, or LoRA files, but not their run"
        number += 1


def run_name(run_id: str) -> str:
    """The name of the folder of the run with this id."""
    return run_id.rpartition("-")[0]


def find_run(runs: Path, run_id: str) -> RunFolder | None:
    """The run with this id among the folders in `runs`, or None."""
    name = run_name(run_id)
    if not name or name != Path(name).name or name in (".", "..") or "\\" in name:
        return None
    run = RunFolder.open(runs / name)
    return run if run is not None and run.id == run_id else None


def _difference(run: RunFolder, job: TrainingJob, dataset: str) -> str:
    before = run.job()
    if before is None:
        return "its settings cannot be read by this version"
    ours, theirs = (_flat(j.model_dump(mode="json")) for j in (job, before))
    for key in sorted(ours.keys() | theirs.keys()):
        if ours.get(key) != theirs.get(key) and not key.startswith(MAY_CHANGE):
            return f"{key} was {theirs.get(key)!r} and is now {ours.get(key)!r}"
    if dataset != run.dataset:
        return "its clips, captions or model files were changed"
    done = run.checkpoints()
    if done and done[-1] > job.schedule.steps:
        return f"it has already trained {done[-1]} steps, more than {job.schedule.steps}"
    return ""


def _flat(data: object, prefix: str = "") -> dict[str, object]:
    if not isinstance(data, dict):
        return {prefix: data}
    return {key: value for name, part in data.items() for key, value in _flat(part, f"{prefix}.{name}".strip(".")).items()}
