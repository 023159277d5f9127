"""Drawing videos: one sampler for training samples and the Sample Video node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from .adapters.file import load_lora, require_modules
from .adapters.lora import Lora
from .components import Components
from .compute import Compute
from .errors import fail
from .events import EventLog, Listener, Silent
from .models import open_model
from .models.base import ModelInputs
from .objectives.noise_levels import sampling_sigmas

if TYPE_CHECKING:
    from torch import Tensor, nn

    from .job import ComputeSettings
    from .models.base import FamilySpec, ModelFamily


@dataclass(frozen=True)
class SampleRequest:
    """One video to draw; 0 for guidance or shift takes the model's own."""

    prompt: str
    frames: int
    height: int
    width: int
    negative: str = ""
    steps: int = 20
    guidance: float = 0.0
    shift: float = 0.0
    seed: int = 0

    def checked(self, spec: FamilySpec) -> SampleRequest:
        """The request itself; raises UserError if the model cannot draw this size."""
        if not spec.frame_rule.allows(self.frames):
            raise fail(
                "frames",
                f"{self.frames} is not possible, this model takes {spec.frame_rule}.",
                f"Use {spec.frame_rule.floor(self.frames)}.",
            )
        for name, value in (("height", self.height), ("width", self.width)):
            if value % spec.size_multiple:
                nearest = max(round(value / spec.size_multiple), 1) * spec.size_multiple
                raise fail(name, f"{value} is not a multiple of {spec.size_multiple}.", f"Use {nearest}.")
        return self


def start_noise(spec: FamilySpec, request: SampleRequest) -> Tensor:
    """The starting noise of a request, [1, C, T, h, w]: a CPU generator seeded by its seed, as core samplers draw it."""
    import torch

    shape = (1, *spec.latent_shape(request.frames, request.height, request.width))
    return torch.randn(shape, generator=torch.Generator("cpu").manual_seed(request.seed))


def denoise(
    family: ModelFamily,
    transformer: nn.Module,
    x: Tensor,
    sigmas: Tensor,
    text: dict[str, Tensor],
    negative: dict[str, Tensor],
    guidance: float,
    check: Callable[[], None] = lambda: None,
) -> Tensor:
    """Euler steps along the velocity with classifier-free guidance (Ho & Salimans 2022): noise [B, …] -> latents [B, …].

    `sigmas` [steps + 1] runs from 1 to 0. `check` is called before each step and may raise.
    """
    import torch

    with torch.no_grad():
        for sigma, following in pairwise(sigmas):
            check()
            level = sigma.expand(x.shape[0]).to(x.device)
            velocity = _velocity(family, transformer, x, level, text)
            if guidance != 1:
                base = _velocity(family, transformer, x, level, negative)
                velocity = base + guidance * (velocity - base)
            x = x + (following - sigma).to(x.device) * velocity
    return x


def _velocity(family: ModelFamily, transformer: nn.Module, x: Tensor, sigma: Tensor, text: dict[str, Tensor]) -> Tensor:
    inputs = ModelInputs(family.denoiser_inputs(x, sigma, text), x, sigma, target=x)
    return family.predict(transformer, inputs).float()


def draw(
    components: Components,
    request: SampleRequest,
    text: dict[str, Tensor],
    negative: dict[str, Tensor],
    check: Callable[[], None] = lambda: None,
) -> Tensor:
    """A request's video from cached prompt embeddings: [F, H, W, 3] uint8; raises UserError if it is not finite."""
    import torch

    family, compute, spec = components.family, components.compute, components.family.spec
    sigmas = sampling_sigmas(request.steps, request.shift or spec.sample_shift)
    with_text, without = ({k: v.to(compute.device) for k, v in family.text_inputs([t]).items()} for t in (text, negative))
    noise = start_noise(spec, request).to(compute.device)
    with compute.autocast():
        latents = denoise(family, components.transformer(), noise, sigmas, with_text, without, request.guidance or spec.guidance, check)
    if not torch.isfinite(latents).all():
        raise fail("sample", f"'{request.prompt}' came out as NaN.", "Set precision to fp32, or train at a lower learning rate.")
    check()
    return family.decode_video(components.vae(), latents)


class Countdown:
    """The `check` of drawing requests one after the other: hears a cancel and reports progress, decoding as one step.

    `finish` is called when all are drawn.
    """

    def __init__(self, log: EventLog, requests: Sequence[SampleRequest]) -> None:
        self._total = sum(request.steps + 1 for request in requests)
        self._report, self._done = log.progress(self._total, "sampling steps"), 0

    def __call__(self) -> None:
        self._report(self._done)
        self._done += 1

    def finish(self) -> None:
        """Reports the last request as decoded."""
        self._report(self._total)


class VideoSampler:
    """A model folder opened for drawing, with an optional LoRA; one object draws many videos."""

    def __init__(
        self, folder: Path, settings: ComputeSettings, lora: Path | None = None, strength: float = 1.0, listener: Listener | None = None
    ) -> None:
        self.family = open_model(folder)
        self.log = EventLog(listener or Silent())
        self.components = Components(self.family, Compute(settings), self.log)
        self._weights = load_lora(lora, self.family) if lora else None
        self._where, self._strength = str(lora), strength
        self.lora: Lora | None = None
        self._texts: dict[str, dict[str, Tensor]] = {}

    def text(self, prompt: str) -> dict[str, Tensor]:
        """The prompt's embeddings, kept for further requests."""
        if prompt not in self._texts:
            self._texts[prompt] = self.family.encode_text(self.components.text_encoder(), prompt)
        return self._texts[prompt]

    def attach(self) -> None:
        """Puts the LoRA on the transformer, once: after the texts are encoded, as both models may not fit together."""
        if self._weights is not None and self.lora is None:
            transformer = self.components.transformer()
            require_modules(self._weights, dict(transformer.named_modules()), self._where)
            self.lora = Lora.from_weights(transformer, self._weights, self._where)
            self.lora.set_strength(self._strength)

    def __call__(self, request: SampleRequest) -> Tensor:
        """Draws a request: [F, H, W, 3] uint8; raises UserError for a size the model cannot draw, Interrupted on cancel."""
        request = request.checked(self.family.spec)
        text, negative = self.text(request.prompt), self.text(request.negative)
        self.components.park_text_encoder()
        self.attach()
        countdown = Countdown(self.log, [request])
        try:
            video = draw(self.components, request, text, negative, countdown)
        finally:
            self.components.park_vae()
        countdown.finish()
        return video


def encode_prompt(folder: Path, text: str, settings: ComputeSettings) -> Tensor:
    """[1, L, D] float32 embeddings padded to the model's text length, as core samplers take them."""
    sampler = VideoSampler(folder, settings)
    return next(iter(sampler.family.text_inputs([sampler.text(text)]).values()))
