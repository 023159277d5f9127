"""run(job) -> RunResult: from settings to a trained LoRA file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import events
from .errors import Interrupted, UserError, fail
from .events import EventLog, Listener, Silent, read_events
from .job_check import check_against_model
from .packages import require

if TYPE_CHECKING:
    from .adapters.lora import Lora
    from .adapters.weights import LoraWeights
    from .components import Components
    from .data.dataset import TrainingData
    from .job import SamplePrompt, TrainingJob
    from .models.base import Expert, FamilySpec, ModelFamily
    from .objectives.base import Objective
    from .runfolder import RunFolder
    from .samples import Samples
    from .sampling import SampleRequest
    from .training import Training


@dataclass(frozen=True)
class Places:
    """Where a run may write, and where it may look for models."""

    runs: Path  # run folders
    loras: Path  # exported LoRA files
    cache: Path  # encoded clips and captions
    models: tuple[Path, ...] = ()  # folders that hold diffusers model folders
    downloads: Path | None = None  # where hub models may be downloaded; None forbids downloading

    @classmethod
    def under(cls, output: Path, models: tuple[Path, ...] = (), downloads: Path | None = None) -> Places:
        """The usual places below an output folder."""
        return cls(output / "video_trainer", output / "loras", output / "video_trainer/cache", models, downloads)

    def check(self) -> None:
        """Makes the folders; raises UserError naming the one that cannot be written."""
        for folder in (self.runs, self.loras, self.cache):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder):
                    pass
            except OSError as error:
                raise fail(
                    str(folder), f"cannot be written: {error}.", "Give it write permission, or choose another output folder."
                ) from None


@dataclass(frozen=True)
class RunResult:
    """What a run left: the LoRA files, the loss of every step and the newest sample videos."""

    run_id: str
    folder: Path
    model: Path
    loras: dict[str, Path]  # by expert, with one expert by ""
    steps: int
    losses: list[float]
    samples: list[Path]
    lora_user: str = ""  # what applies the LoRA, where ComfyUI's core has no such model

    @property
    def lora(self) -> Path:
        """The LoRA file, of several experts the first."""
        return next(iter(self.loras.values()))


def run(job: TrainingJob, places: Places, listener: Listener | None = None) -> RunResult:
    """Trains, resumes or returns what is already trained; raises UserError, or Interrupted once progress is saved."""
    from .data.cache_use import working_from

    require()
    places.check()
    with working_from(places.cache):
        return _run(job, places, EventLog(listener or Silent()))


def _run(job: TrainingJob, places: Places, log: EventLog) -> RunResult:
    from .combinations import without_effect
    from .components import Components
    from .compute import Compute
    from .data.cache import TensorCache
    from .data.content import component_identity, key_of
    from .data.opening import open_dataset
    from .memory.attention import kernels_of, require_original
    from .models import open_model
    from .optimizer_trial import optimizer_notices
    from .runfolder import open_run
    from .source import find_model

    log.emit(events.Phase("prepare", "Opening the model"))
    job = job.with_absolute_paths()
    found = find_model(job.model, places.models, places.downloads, log)
    family = open_model(found)
    check_against_model(job, family, places.runs / job.output.name)
    for text in optimizer_notices(job):
        log.notice(text, "optimizer")
    if family.spec.step_distilled:
        log.notice(
            "This model was distilled to sample in a few steps or without guidance, and training wears that off. "
            "Train on the model that it was made from: the LoRA works on both.", "model.source",
        )  # fmt: skip
    if family.spec.frame_rule.most == 1:
        log.notice("This model makes images: it is trained on single frames of the clips, in one-frame buckets.", "model.source", "info")
    compute, scratch = Compute(job.compute), places.cache / "offloaded"
    for where, text in without_effect(job, compute.device.type):
        log.notice(text, where, "info")
    kernels_of(compute)  # before anything large is read, as these may be missing
    require_original()
    components = Components(family, compute, log, job.memory, draws_random=job.adapter.dropout > 0, scratch=scratch)
    store = TensorCache(places.cache)
    try:
        dataset = open_dataset(
            job.dataset, job.captions, family, store, components, log,
            seed=job.schedule.seed, may_download=places.downloads is not None,
        )  # fmt: skip
        log.emit(events.Phase("prepare", "Identifying the model"))
        weights = component_identity(store.index, family.files.paths(["transformer"]), log.check)
        store.index.save()
        folder, reason = open_run(job, key_of(dataset=dataset.fingerprint, model=weights), places.runs, places.loras)
        with folder.only_here():  # the log is its trainer's alone
            log.bind(folder.events, folder.id)
            if reason:
                log.notice(f"Training under the name '{folder.name}': {reason}.", "output.name", "info")
            with _failure_told(log):
                return _train(job, places, folder, dataset, components, log, weights)
    finally:
        components.drop_all()


def _train(
    job: TrainingJob, places: Places, folder: RunFolder, dataset: TrainingData, components: Components, log: EventLog, base_hash: str
) -> RunResult:
    import torch

    from .adapters.export import Exporter
    from .data.sampler import Sampler
    from .experts import trained_experts
    from .memory.limit import limited
    from .memory.plan import told_plan
    from .objectives.flow_matching import FlowMatching
    from .objectives.prefetch import Prefetched
    from .samples import Samples
    from .sampling import seen_picture
    from .section_prompts import section_prompts

    family, compute, steps = components.family, components.compute, job.schedule.steps
    exporter = Exporter(places.loras, folder.name, job, family, base_hash)
    experts = trained_experts(family.spec, job.model.expert)
    files, done = {expert.name: exporter.file(steps, expert.name) for expert in experts}, steps
    if folder.checkpoints()[-1:] == [steps] and all(_readable(file, family) for file in files.values()):
        log.notice("Already trained with these settings and clips; this is that result.", "output.name", "info")
    else:
        folder.write_job(job)
        requests = sample_requests(job, family, dataset)
        for request in requests:
            for prompt in section_prompts(request, family.spec):
                dataset.add_text(prompt, seen_picture(request, family.spec))
            dataset.add_text(request.negative)
        components.drop_text_encoder()
        components.park_vae()
        if plan := told_plan(job, components, dataset, log):
            components.choose(plan.choices)
            components.decoding = plan.decoding
        sampler = Sampler.scheduled(dataset, job.schedule)
        dataset.report.describe(sampler)
        dataset.report.write(folder.path)
        log.notice(f"One step averages over {sampler.effective_batch}; an epoch has {sampler.steps_per_epoch} steps.", "dataset", "info")
        batches = FlowMatching(job, family, dataset, sampler, torch.device("cpu"))
        with (
            compute.repeatable(),
            limited(compute.device, job.memory.fit_into),
            Prefetched(batches, compute.device, steps) as objective,
        ):
            training = _prepared(job, folder, components, objective, Samples(folder, requests, dataset, components, log), log)
            training.expected_seconds = plan.step_seconds if plan else 0.0
            files, done, usage = training.train(exporter), training.step, training.usage
        del training, objective
        components.drop_all()
        with usage.during("after"):
            pass
        usage.tell(log)
    result = _result(job, folder, family, files, done)
    log.emit(events.Finished(done, str(result.lora)) if done == steps else events.Stopped(done))
    return result


def _prepared(
    job: TrainingJob, folder: RunFolder, components: Components, objective: Objective, samples: Samples, log: EventLog
) -> Training:
    """The model with its LoRA, at its newest checkpoint."""
    from .experts import trained_experts
    from .training import Training

    log.emit(events.Phase("load", "Loading the transformer"))
    newest = folder.newest_checkpoint(log)
    experts = trained_experts(components.family.spec, job.model.expert)
    loras = {e.name: _attach(job, e, newest[1].get(e.name) if newest else None, components, log) for e in experts}
    training = Training(job, folder, components, loras, objective, samples, log)
    training.resume(newest)
    return training


@contextmanager
def _failure_told(log: EventLog) -> Iterator[None]:
    """Ends the log with what went wrong inside the block."""
    try:
        yield
    except (Interrupted, KeyboardInterrupt):
        with suppress(OSError):
            log.emit(events.Stopped(log.step))
        raise
    except BaseException as error:
        with suppress(OSError):  # a full disk must not hide what went wrong
            log.emit(events.Failed(str(error) or type(error).__name__))
        raise


def sample_requests(job: TrainingJob, family: ModelFamily, dataset: TrainingData) -> list[SampleRequest]:
    """The job's sample prompts, or two captions of the clips, at sizes the model can draw."""
    from .sampling import SampleRequest

    settings = job.samples
    requests = []
    for prompt in settings.prompts or _prompts_of_clips(family.spec, dataset):
        size = prompt.size or dataset.sample_size
        request = SampleRequest(
            prompt.prompt,
            size.frames,
            size.height,
            size.width,
            prompt.negative,
            settings.steps,
            settings.guidance,
            settings.shift,
            prompt.seed,
            prompt.image,
            prompt.last_image,
        )
        requests.append(request.checked(family.spec))
    return requests


def _prompts_of_clips(spec: FamilySpec, dataset: TrainingData) -> list[SamplePrompt]:
    """Captions of two clips, each with the pictures of its clip that the model cannot do without."""
    from .job import SamplePrompt

    clips: dict[str, str] = {}  # by caption the first clip's file
    for item in dataset.items:
        if not spec.required or item.path.is_file():
            clips.setdefault(item.captions[0], str(item.path))
    first, last = (name in spec.required for name in ("first_frame", "last_frame"))
    shown = list(clips.items())[:2]
    return [SamplePrompt(prompt=text, image=clip if first else "", last_image=clip if last else "") for text, clip in shown]


def _readable(file: Path, family: ModelFamily) -> bool:
    from .adapters.file import load_lora

    try:
        load_lora(file, family)
    except UserError:
        return False
    return True


def _attach(job: TrainingJob, expert: Expert, weights: LoraWeights | None, components: Components, log: EventLog) -> Lora:
    """An expert's LoRA: a checkpoint's `weights`, else the LoRA that it continues from, else shaped by the settings."""
    from .adapters.file import load_lora
    from .adapters.lora import Lora
    from .experts import continued_file

    family, transformer = components.family, components.frozen_transformer(expert)
    settings, file = job.adapter, Path("adapter")
    if weights is None and settings.continue_from:
        file = continued_file(job, expert, family.spec)
        weights = load_lora(file, family)
        if weights.strengths != [(settings.rank, settings.effective_alpha)]:
            log.notice(f"Continuing a LoRA of {weights}: these are used.", "adapter.rank", "info")
    if weights is None:
        lora = Lora.attach(transformer, family.spec, settings, job.schedule.seed, log)
    else:
        lora = Lora.from_weights(transformer, weights, str(file), settings.dropout, settings.precision)
    lora.train(True)
    return lora


def _result(job: TrainingJob, folder: RunFolder, family: ModelFamily, loras: dict[str, Path], steps: int) -> RunResult:
    from .adapters.file import load_lora
    from .adapters.weights import check_changed
    from .experts import experts_until, trained_experts

    for expert in experts_until(steps, trained_experts(family.spec, job.model.expert), job.schedule.switch_every):
        check_changed(load_lora(loras[expert.name], family), str(loras[expert.name]))
    losses: list[float] = []
    samples: dict[object, Path] = {}
    for event in read_events(folder.events):
        if event["type"] == "step":
            losses.append(float(str(event["loss"])))
        elif event["type"] == "sample":
            samples[event["slot"]] = folder.path / str(event["file"])
    return RunResult(folder.id, folder.path, Path(family.files.name), loras, steps, losses, list(samples.values()), family.spec.lora_user)
