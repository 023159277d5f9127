"""Training steps to be measured: ours as a run does them, and the plain way in a loop of a few lines."""

from __future__ import annotations

import gc
import inspect
import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.benchmarks.full_size import Full, Size, model, opened, random_data, random_weights, told

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from trainer.events import Event
    from trainer.memory.choices import Choices
    from trainer.models.base import ModelFamily

GIB = 1 << 30
RANK, WARM_UP, STEPS = 32, 2, 3
ENOUGH = 60.0  # seconds of timed steps after which there are no more
SEED = 5


@dataclass(frozen=True)
class Work:
    """What is trained: a model of the table, its size and batch, the LoRA's rank and layers. `small`: on a CPU, a model of two layers."""

    model: str
    size: Size | None = None  # None: the model's own
    batch: int = 1
    rank: int = RANK
    layers: tuple[str, ...] = ()  # ends of module names; empty: all linear layers of the blocks
    small: bool = False

    @property
    def full(self) -> Full:
        """The model."""
        return model(self.model, self.small)

    @property
    def shape(self) -> Size:
        """Frames, height, width of a clip; of a small model always its own."""
        return self.full.size if self.small else self.size or self.full.size

    def __str__(self) -> str:
        return f"{self.model}{' (small)' * self.small} {told(self.shape)}{f' batch {self.batch}' if self.batch > 1 else ''}"


@dataclass(frozen=True)
class Measured:
    """A step's seconds (median and least), what came before it, and what it takes of the card; memory is not a number on a CPU."""

    seconds: float
    least: float
    first: float  # seconds of the steps that warm up, compilation included, over those that as many later ones take
    building: float  # seconds to make the model and its adapter
    allocated_gib: float
    reserved_gib: float
    losses: tuple[float, ...]  # of all steps
    notices: tuple[str, ...] = ()

    @property
    def figures(self) -> dict[str, Any]:
        """For the log."""
        return asdict(self)

    def __str__(self) -> str:
        memory = "" if math.isnan(self.allocated_gib) else f"  {self.allocated_gib:5.1f} GiB ({self.reserved_gib:.1f} reserved)"
        before = f"compile and warm-up {self.first:.0f} s, build {self.building:.0f} s"
        return f"{self.seconds:6.2f} s/step (least {self.least:.2f}){memory}  {before}" + "".join(f"; {notice}" for notice in self.notices)


class Heard:
    """A listener that keeps losses and notices."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.notices: list[str] = []

    def emit(self, event: Event) -> None:
        if event.type == "step":
            self.losses.append(event.loss)  # type: ignore[attr-defined]
        elif event.type == "notice":
            self.notices.append(event.text)  # type: ignore[attr-defined]

    def request(self) -> None:
        return None


@dataclass
class Steps:
    """A step to be called again and again, what it has told, and how its memory is given back."""

    step: Callable[[], Any]
    heard: Heard
    close: Callable[[], None]
    training: Any = None  # ours: the run's Training


@dataclass(frozen=True)
class Way:
    """How ours is run beside its choices: sizes in turn rather than one, repeatable, experts by turns of so many steps."""

    sizes: Sequence[Size] = ()
    deterministic: bool = False
    switch_every: int = 10


def ours(work: Work, choices: Choices, device: torch.device, way: Way | None = None) -> Steps:
    """A run's own Training over components with random weights, at what `choices` say."""
    from trainer.components import Components
    from trainer.compute import Compute
    from trainer.data.sampler import Sampler
    from trainer.events import EventLog
    from trainer.experts import trained_experts
    from trainer.job import TrainingJob
    from trainer.memory.limit import unfragmented
    from trainer.training import Training

    way, heard, stack = way or Way(), Heard(), ExitStack()
    settings: dict[str, dict[str, Any]] = {
        "adapter": {"rank": work.rank},
        "compute": {"device": device.type, "dtype": "bf16", "deterministic": way.deterministic, **applied(choices)},
        "objective": {"first_frame_probability": 0.0},  # as plain's steps are
        "schedule": {"steps": 100_000, "batch_size": work.batch, "switch_every": way.switch_every, "seed": SEED},
    }
    job, family, log = TrainingJob.parse(settings), opened(work.model, work.small), EventLog(heard)
    compute = Compute(job.compute)
    stack.enter_context(compute.repeatable())
    stack.enter_context(unfragmented(compute.device))
    components = Components(family, compute, log, job.memory)
    components.choose(choices)
    form, alone = choices.weights if choices.weights in ("fp8", "int8", "nf4") else "", len(family.spec.experts) == 1
    home = device if alone and not choices.offload else _host()
    with random_weights(family, device, home, form):
        experts = trained_experts(family.spec, job.model.expert)
        loras = {expert.name: lora_on(components.frozen_transformer(expert), work, family) for expert in experts}
        given = random_data(work.full, family, way.sizes or [work.shape], work.batch)
        objective = stack.enter_context(_objective(job, family, given, Sampler.scheduled(given, job.schedule), compute.device))
        training = Training(job, None, components, loras, objective, None, log)  # type: ignore[arg-type]  # it saves and samples nothing

    def close() -> None:
        stack.close()
        components.drop_all()

    return Steps(training.one_step, heard, close, training)


def applied(choices: Choices) -> dict[str, str]:
    """What of the choices the settings say too."""
    return {"compile": "on" if choices.compile else "off", "fp8_products": "on" if choices.fp8_products else "off"}


def lora_on(transformer: Any, work: Work, family: ModelFamily) -> Any:
    """The LoRA of a piece of work, in training."""
    from peft import LoraConfig

    from trainer.adapters.lora import Lora
    from trainer.job import AdapterSettings

    if work.layers:
        lora = Lora(transformer, LoraConfig(r=work.rank, lora_alpha=work.rank, target_modules=list(work.layers)), SEED)
    else:
        lora = Lora.attach(transformer, family.spec, AdapterSettings(rank=work.rank), SEED)
    lora.train(True)
    return lora


@contextmanager
def _objective(job: Any, family: ModelFamily, given: Any, sampler: Any, device: torch.device) -> Iterator[Any]:
    """Flow matching, its micro-batches made ahead."""
    import torch

    from trainer.objectives.flow_matching import FlowMatching
    from trainer.objectives.prefetch import Prefetched

    with Prefetched(FlowMatching(job, family, given, sampler, torch.device("cpu")), device, job.schedule.steps) as objective:
        yield objective


def plain(work: Work, device: torch.device) -> Steps:
    """A step as diffusers' example scripts write it: the model, peft, gradient checkpointing, AdamW; inputs made once."""
    import torch

    family, heard = opened(work.model, work.small), Heard()
    with random_weights(family, device, device):
        transformer: Any = family.load_transformer(torch.bfloat16).requires_grad_(False)
    transformer.to(device).enable_gradient_checkpointing()
    transformer.add_adapter(_peft_config(work, family))
    trained = [parameter for parameter in transformer.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    kwargs = plain_inputs(work, family, device)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            output = transformer(**kwargs, return_dict=False)[0]
        loss = output.float().square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        heard.losses.append(loss.item())

    return Steps(step, heard, lambda: None)


def _peft_config(work: Work, family: ModelFamily) -> Any:
    from peft import LoraConfig

    targets = list(work.layers) or family.spec.adapter_targets["all"]
    return LoraConfig(r=work.rank, lora_alpha=work.rank, target_modules=targets)


def plain_inputs(work: Work, family: ModelFamily, device: torch.device) -> dict[str, Any]:
    """A batch of the family's own inputs at noise level 0.5."""
    import torch

    given = random_data(work.full, family, [work.shape], work.batch)
    encoded = family.stack([given.latents(item) for item in given.items])
    batch = {name: tensor.to(device) for name, tensor in encoded.items()}
    if family.spec.first_frame_optional:
        del batch["first_frame"]
    if family.spec.guidance_input is not None:
        batch["guidance"] = torch.ones(work.batch, device=device)
    text = {name: tensor.to(device) for name, tensor in family.text_inputs([given.text("")] * work.batch).items()}
    noise, sigma = torch.randn_like(batch["latents"]), torch.full((work.batch,), 0.5, device=device)
    kwargs = family.model_inputs(batch, text, noise, sigma).kwargs
    return {**_masks(family, kwargs), **kwargs}


def _masks(family: ModelFamily, kwargs: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The masks of ones that the transformer asks for beside texts without padding."""
    import torch

    asked = inspect.signature(family.transformer_class.forward).parameters
    texts = {name.replace("attention_mask", "hidden_states"): name for name in asked if "attention_mask" in name}
    return {
        mask: torch.ones(kwargs[text].shape[:2], dtype=torch.bool, device=kwargs[text].device)
        for text, mask in texts.items()
        if text in kwargs
    }


def measured(make: Callable[[], Steps], device: torch.device, warm_up: int = WARM_UP, steps: int = STEPS) -> Measured:
    """Builds, warms up, times some steps and gives all memory back."""
    start = time.perf_counter()
    built = make()
    synchronize(device)
    building = time.perf_counter() - start
    try:
        return replace(timed(built, device, warm_up, steps), building=building)
    finally:
        release(built, device)


def timed(built: Steps, device: torch.device, warm_up: int = WARM_UP, steps: int = STEPS) -> Measured:
    """Times steps of what is built; peaks are those after the warm-up."""
    import torch

    before = sum(_seconds(built, device) for _ in range(warm_up))
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    seconds: list[float] = []
    while len(seconds) < steps and sum(seconds) < ENOUGH:
        seconds.append(_seconds(built, device))
    peaks = (torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)) if device.type == "cuda" else (math.nan,) * 2
    losses = tuple(built.heard.losses)
    assert all(map(math.isfinite, losses)), f"a loss is not a number: {losses}"
    median = statistics.median(seconds)
    return Measured(
        median, min(seconds), max(before - warm_up * median, 0.0), 0.0, peaks[0] / GIB, peaks[1] / GIB, losses, tuple(built.heard.notices)
    )


def _seconds(built: Steps, device: torch.device) -> float:
    synchronize(device)
    start = time.perf_counter()
    built.step()
    synchronize(device)
    return time.perf_counter() - start


def release(built: Steps, device: torch.device) -> None:
    """Lets go of what was built; compiled code goes with it."""
    import torch

    built.close()
    built.step, built.training = _nothing, None
    gc.collect()
    torch._dynamo.reset()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _nothing() -> None:
    raise AssertionError("what was measured is gone")


def synchronize(device: torch.device) -> None:
    """Waits until a card is done."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _host() -> torch.device:
    import torch

    return torch.device("cpu")


@contextmanager
def traced_only() -> Iterator[None]:
    """Inside the block what is compiled is traced and differentiated ahead of time, and no kernels are made: for a CPU."""
    import torch

    compile: Any = torch.compile

    def traced(*args: Any, **kwargs: Any) -> Any:
        return compile(*args, **{**kwargs, "backend": "aot_eager"})

    with patch.object(torch, "compile", traced):
        yield


def card_of(device: torch.device) -> str:
    """What a report calls the device."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
