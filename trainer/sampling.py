"""Drawing videos: one sampler for training samples and the Sample Video node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, cast

from .adapters.file import load_lora
from .adapters.lora import Lora
from .adapters.recognition import require_fit
from .components import Components
from .compute import Compute
from .errors import fail
from .events import EventLog, Listener, Silent
from .experts import expert_for
from .memory.attention import Attention
from .memory.stepping_down import stepping_down
from .memory.vae_room import with_vae
from .models import open_model
from .models.base import ModelInputs
from .objectives.noise_levels import sampling_sigmas
from .section_prompts import section_prompts

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

    from .data.pictures import Picture
    from .job import ComputeSettings, ModelSettings
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
    first_frame: str = ""  # picture files to start from and to end at, or clips, whose first and last frame is taken
    last_frame: str = ""

    @property
    def pictures(self) -> dict[str, str]:
        """The picture files that are given, by condition."""
        given = {"first_frame": self.first_frame, "last_frame": self.last_frame}
        return {name: file for name, file in given.items() if file}

    def checked(self, spec: FamilySpec) -> SampleRequest:
        """The request itself; raises UserError if the model cannot draw this size, or lacks a picture or takes none."""
        for name in spec.required:
            if name not in self.pictures:
                raise fail(name, "is missing: this model starts from a picture.", "Give a picture file.")
        for name in self.pictures:
            if name not in spec.conditions:
                raise fail(name, "is not used: this model does not take that picture.", "Remove it.")
        if not spec.frame_rule.allows(self.frames):
            raise fail(
                "frames",
                f"{self.frames} is not possible, this model takes {spec.frame_rule}.",
                f"Use {spec.frame_rule.floor(self.frames)}.",
            )
        nearest = spec.size_near(self.height, self.width)
        for name, value, side in zip(("height", "width"), (self.height, self.width), nearest, strict=True):
            if value != side:
                raise fail(name, f"{value} is not possible, this model takes {spec.size_rule}.", f"Use {side}.")
        return self


def start_noise(spec: FamilySpec, request: SampleRequest) -> Tensor:
    """The starting noise of a request, [1, C, T, h, w]: a CPU generator seeded by its seed, as core samplers draw it."""
    import torch

    shape = (1, *spec.latent_shape(request.frames, request.height, request.width))
    return torch.randn(shape, generator=torch.Generator("cpu").manual_seed(request.seed))


def denoise(
    family: ModelFamily,
    transformer: Callable[[float], nn.Module],
    x: Tensor,
    sigmas: Tensor,
    text: dict[str, Tensor],
    negative: dict[str, Tensor],
    guidance: float,
    given: dict[str, Tensor] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Tensor:
    """Euler steps along the velocity with classifier-free guidance (Ho & Salimans 2022): noise [B, …] -> latents [B, …].

    `transformer` gives the module that serves a noise level, `sigmas` [steps + 1] runs from 1 to 0; a guidance-distilled
    model is fed the guidance instead. `check` is called before each step and may raise.
    """
    import torch

    given = given or {}
    if family.spec.guidance_input is not None:
        given, guidance = {**given, "guidance": torch.full((x.shape[0],), guidance, device=x.device)}, 1.0
    with torch.no_grad():
        for sigma, following in pairwise(sigmas):
            check()
            module, level = transformer(sigma.item()), sigma.expand(x.shape[0]).to(x.device)
            x = family.conditioned(x, given)
            velocity = _velocity(family, module, x, level, text, given)
            if guidance != 1:
                base = _velocity(family, module, x, level, negative, given)
                velocity = base + guidance * (velocity - base)
            x = x + (following - sigma).to(x.device) * velocity
    return family.conditioned(x, given)


def _velocity(
    family: ModelFamily, transformer: nn.Module, x: Tensor, sigma: Tensor, text: dict[str, Tensor], given: dict[str, Tensor]
) -> Tensor:
    inputs = ModelInputs(family.denoiser_inputs(x, sigma, text, given), x, sigma, target=x)
    return family.predict(transformer, inputs).float()


def draw(
    components: Components,
    request: SampleRequest,
    texts: Sequence[dict[str, Tensor]],
    negative: dict[str, Tensor],
    check: Callable[[], None] = lambda: None,
) -> Tensor:
    """A request's video from cached embeddings of its `section_prompts`: [F, H, W, 3] uint8; raises UserError if it is not finite."""
    import torch

    family, compute, spec = components.family, components.compute, components.family.spec
    *with_text, without = ({k: v.to(compute.device) for k, v in family.text_inputs([t]).items()} for t in (*texts, negative))
    noise, given = start_noise(spec, request).to(compute.device), _given(components, request)
    sigmas = family.sampling_level(sampling_sigmas(request.steps, request.shift or family.shift(noise.shape[1:], sampling=True)))

    def denoised(noise: Tensor, given: dict[str, Tensor], section: int = 0) -> Tensor:
        text, guidance = with_text[section if len(with_text) > 1 else 0], request.guidance or spec.guidance
        return denoise(family, serving(components), noise, sigmas, text, without, guidance, given, check)

    with compute.autocast(), Attention(compute, serving(components)(sigmas[0].item())).sampling():
        latents = family.generate(denoised, noise, given)
    if not torch.isfinite(latents).all():
        raise fail("sample", f"'{request.prompt}' came out as NaN.", "Set precision to fp32, or train at a lower learning rate.")
    check()
    return with_vae(components, lambda vae: family.decode_video(vae, latents), "sample")


def serving(components: Components) -> Callable[[float], nn.Module]:
    """Gives the transformer that serves a noise level, on the device."""
    return lambda sigma: cast("nn.Module", components.transformer(expert_for(sigma, components.family.spec.experts)))


def read_pictures(request: SampleRequest) -> dict[str, np.ndarray]:
    """The request's pictures by condition, each cut to the video's size, [H, W, 3] uint8; raises UserError for one that cannot be read."""
    from .data.pictures import first_picture

    size = request.height, request.width
    return {name: first_picture(Path(file), *size, name, last=name == "last_frame") for name, file in request.pictures.items()}


def _given(components: Components, request: SampleRequest) -> dict[str, Tensor]:
    """What the model is given of the request's pictures, each cut to the video's size, as a batch of one on the device."""
    import torch

    family, device = components.family, components.compute.device
    pictures = {name: torch.from_numpy(frame).to(device) for name, frame in read_pictures(request).items()}
    if not pictures:
        return {}
    size = request.frames, request.height, request.width

    def encoded_by(vae: nn.Module) -> dict[str, Tensor]:
        try:
            seer = components.image_encoder() if family.spec.image_encoder else None
            with torch.no_grad():
                return family.encode_conditions(vae, seer, pictures, size)
        finally:
            components.park_image_encoder()

    encoded = with_vae(components, encoded_by, "sample", decodes=False)
    return {name: tensor[None].to(device) for name, tensor in encoded.items()}


def seen_picture(request: SampleRequest, spec: FamilySpec) -> Picture | None:
    """The first frame that a request's prompt is encoded with, for models whose texts see it; raises UserError if it cannot be read."""
    from .data.pictures import Picture, first_picture, pixel_digest

    if not spec.text_sees_image:
        return None
    frame = first_picture(Path(request.first_frame), request.height, request.width, "first_frame")
    return Picture(pixel_digest(frame).hex(), lambda: frame)


class Countdown:
    """The `check` of drawing requests one after the other: hears a cancel and reports progress, decoding as one step.

    `finish` is called when all are drawn.
    """

    def __init__(self, log: EventLog, spec: FamilySpec, requests: Sequence[SampleRequest]) -> None:
        self._total = sum(request.steps * spec.sections(request.frames) + 1 for request in requests)
        self._report, self._done = log.progress(self._total, "sampling steps"), 0

    def __call__(self) -> None:
        self._report(self._done)
        self._done += 1

    def finish(self) -> None:
        """Reports the last request as decoded."""
        self._report(self._total)


class VideoSampler:
    """A model opened for drawing, with LoRA files by expert; one object draws many videos."""

    def __init__(
        self, model: Path | ModelSettings, settings: ComputeSettings, lora: Mapping[str, Path] | None = None, strength: float = 1.0,
        listener: Listener | None = None,
    ) -> None:  # fmt: skip
        self.family = open_model(model)
        self.log = EventLog(listener or Silent())
        self.components = Components(self.family, Compute(settings), self.log)
        self._strength = strength
        for name in (lora or {}).keys() - {expert.name for expert in self.family.spec.experts}:
            found = f"is of the expert for {name} noise, which this model lacks." if name else "does not say of which expert it is."
            raise fail(str((lora or {})[name]), found, "Choose a LoRA that was trained for this model.")
        self._weights = {name: (load_lora(file, self.family), str(file)) for name, file in (lora or {}).items()}
        for weights, where in self._weights.values():
            require_fit(weights, self.family, where)
        self.loras: list[Lora] = []
        self._texts: dict[tuple[str, Picture | None], dict[str, Tensor]] = {}

    def text(self, prompt: str, picture: Picture | None = None) -> dict[str, Tensor]:
        """The prompt's embeddings with the picture it is encoded with, kept for further requests."""
        import torch

        if (prompt, picture) not in self._texts:
            image = torch.from_numpy(picture.pixels()) if picture else None
            self._texts[prompt, picture] = self.family.encode_text(self.components.text_encoder(), prompt, image)
        return self._texts[prompt, picture]

    def attach(self) -> None:
        """Puts the LoRA on the transformer, once: after the texts are encoded, as both models may not fit together."""
        if self.loras:
            return
        for expert in self.family.spec.experts:
            if expert.name in self._weights:
                weights, where = self._weights[expert.name]
                self.loras.append(Lora.from_weights(cast("nn.Module", self.components.frozen_transformer(expert)), weights, where))
                self.loras[-1].set_strength(self._strength)

    def __call__(self, request: SampleRequest) -> Tensor:
        """Draws a request: [F, H, W, 3] uint8; raises UserError for a size the model cannot draw, Interrupted on cancel."""
        request = request.checked(self.family.spec)
        picture, prompts = seen_picture(request, self.family.spec), section_prompts(request, self.family.spec)
        texts, negative = [self.text(prompt, picture) for prompt in prompts], self.text(request.negative)
        self.components.park_text_encoder()
        self.attach()
        countdown = Countdown(self.log, self.family.spec, [request])
        try:
            work = partial(draw, self.components, request, texts, negative, countdown)
            video = stepping_down(work, self.components, self.log, "sample")
        finally:
            self.components.park_vae()
        countdown.finish()
        return video


def encode_prompt(model: Path | ModelSettings, text: str, settings: ComputeSettings) -> Tensor:
    """[1, L, D] float32 embeddings as core samplers take them, padded where the model sees the padding."""
    sampler = VideoSampler(model, settings)
    return next(iter(sampler.family.text_inputs([sampler.text(text)]).values()))
