"""ModelFamily: all that differs between model families, and nothing else."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ..errors import fail
from ..packages import without_broken
from .files import ModelFiles
from .key_map import KeyMap
from .layout import FileLayout

if TYPE_CHECKING:
    import torch
    from diffusers import ModelMixin
    from torch import Tensor, nn

    from ..memory.choices import Weights


@dataclass(frozen=True)
class FrameRule:
    """Frame counts a family takes: multiple · n + offset, n >= 0, up to `most` (0 does not limit).

    `shortest` is that of the shortest video, where a clip of some frames must not become a still.
    """

    multiple: int
    offset: int = 1
    most: int = 0
    shortest: int = 0

    def floor(self, frames: int) -> int:
        """The largest allowed count not above `frames`; at least `offset`, of more than one frame at least `shortest`."""
        least = self.shortest if frames > 1 else 0
        frames = min(frames, self.most or frames)
        return max(max((frames - self.offset) // self.multiple, 0) * self.multiple + self.offset, least)

    def allows(self, frames: int) -> bool:
        """Whether `frames` is allowed as it is."""
        return self.offset <= frames <= (self.most or frames) and (frames - self.offset) % self.multiple == 0

    def __str__(self) -> str:
        if self.most == self.offset:
            return f"{self.offset} frame" + "s" * (self.offset > 1)
        return f"{self.multiple}n+{self.offset}" + (f" up to {self.most}" if self.most else "")


@dataclass(frozen=True)
class Expert:
    """One of a model's transformers: the subfolder that holds it, and the noise levels low <= sigma < high that it serves, with 1."""

    name: str  # in file names and settings; empty for an only one
    part: str = "transformer"
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True)
class GoalValues:
    """Values of a goal's preset (`trainer/presets.py`); of a family those that differ from the general ones, None where none does."""

    rank: int | None = None
    learning_rate: float | None = None
    steps: int | None = None  # of each expert
    timesteps: str | None = None
    shift: float | None = None  # 0 is the model's own

    def changed(self, other: GoalValues | None) -> GoalValues:
        """These values with those of another in place, where it has any."""
        return replace(self, **{name: value for name, value in vars(other).items() if value is not None}) if other else self


def adapter_presets(attention: str, feed_forward: str) -> dict[str, str]:
    """The presets of `FamilySpec.adapter_targets`, of regexes over module names."""
    return {"all": f"{attention}|{feed_forward}", "attention": attention, "feed-forward": feed_forward}


@dataclass(frozen=True)
class FamilySpec:
    """Facts of one loaded model: what sizes it takes, its latents, its defaults."""

    family: str
    variant: str
    frame_rule: FrameRule
    size_multiple: int  # px, of height and width
    fps: float  # native frames/s
    latent_channels: int
    latent_stride: tuple[int, int, int]  # frames, height, width
    text_length: int  # tokens the transformer sees
    train_shift: float  # default shift of training noise levels
    sample_shift: float  # default shift of sampling noise levels
    guidance: float  # default classifier-free guidance
    default_bucket: tuple[int, int, int]  # frames, height, width, where clips do not say otherwise
    conditions: tuple[str, ...] = ()  # pictures that it can start from: "first_frame", "last_frame"
    required: tuple[str, ...] = ()  # those of them that it cannot do without
    pictures_as_clips: bool = False  # whether they are encoded as a clip of the video's size, rather than each alone
    image_encoder: bool = False  # whether a picture is also seen through an encoder of its own
    text_sees_image: bool = False  # whether a text's embedding depends on the first frame
    guidance_input: float | None = None  # what a guidance-distilled model is fed in training; its `guidance` is fed in sampling
    experts: tuple[Expert, ...] = (Expert(""),)  # the first serves the highest noise levels
    adapter_targets: Mapping[str, str] = field(default_factory=dict)  # preset -> regex over module names
    text_width: int = 0  # channels of the text embedding; 0 where a caption has several embeddings
    only_size: tuple[int, int] | None = None  # height and width, px, of a model that takes no other
    latent_frames_multiple: int = 1  # what the model sees is padded in front to a multiple of it
    diffusers_copy: bool = False  # whether LoRA are also written in diffusers' names, as diffusers does not read ComfyUI's
    step_distilled: bool = False  # whether the base was distilled to sample in a few steps or without guidance, which training wears off
    folds_alpha: bool = False  # whether its LoRA files hold their scale in the weights, as a reader of theirs refuses alpha tensors
    compiles: bool = True  # whether its blocks compile whole: those whose data decide what is computed do not
    section_frames: int = 0  # frames of a section, where long videos are made and trained in sections
    lora_user: str = ""  # what applies its LoRA files, where ComfyUI's core has no such model
    goals: Mapping[str, GoalValues] = field(default_factory=dict)  # goal -> what its preset has of this model's own

    @property
    def first_frame_optional(self) -> bool:
        """Whether it can start from a picture and from none."""
        return "first_frame" in self.conditions and "first_frame" not in self.required

    @property
    def size_rule(self) -> str:
        """The heights and widths that it takes, in words."""
        return f"{self.only_size[0]}x{self.only_size[1]} only" if self.only_size else f"multiples of {self.size_multiple}"

    def size_near(self, height: float, width: float) -> tuple[int, int]:
        """The nearest height and width that it takes, px: halves up, and at least the 16 px that a bucket can have."""
        return self.only_size or (self._side_near(height), self._side_near(width))

    def _side_near(self, side: float) -> int:
        return max(math.floor(side / self.size_multiple + 0.5), math.ceil(16 / self.size_multiple)) * self.size_multiple

    def sections(self, frames: int) -> int:
        """Training examples that the encoding of a clip of so many frames is cut into."""
        return max((frames - self.frame_rule.offset) // self.section_frames, 1) if self.section_frames else 1

    def latent_shape(self, frames: int, height: int, width: int) -> tuple[int, int, int, int]:
        """[C, T, h, w] of a clip's latents as the model sees them."""
        (stride_t, stride_h, stride_w), multiple = self.latent_stride, self.latent_frames_multiple
        count = (frames - 1) // stride_t + 1
        return self.latent_channels, -(-count // multiple) * multiple, height // stride_h, width // stride_w


class Denoise(Protocol):
    """Makes latents of noise [1, C, T, h, w], of the section of this number in time, from what is given."""

    def __call__(self, noise: Tensor, given: dict[str, Tensor], section: int = 0) -> Tensor:
        """The latents, in model space."""
        ...


@dataclass
class ModelInputs:
    """What the transformer is called with for one micro-batch, and what its output is compared with."""

    kwargs: dict[str, Tensor]
    x: Tensor  # noised latents in model space, [B, C, T, h, w]
    sigma: Tensor  # noise level, [B]
    target: Tensor  # velocity, [B, C, T, h, w]
    loss_mask: Tensor | None = None  # 1 where the loss counts, broadcastable to target


class ModelFamily(ABC):
    """One loaded model: its files, its components and the maths that only this family has.

    Conventions, the same for all families: sigma in [0, 1], 1 = noise; x = (1 - sigma)·x0 + sigma·noise;
    velocity = noise - x0. Text embeddings and encodings of clips are dicts of tensors without batch dimension, which the
    cache stores and `stack` batches. What a model is told beside noise level and text is `given`: the tensors of
    `encode_conditions`, and where it applies "guidance" [B] and, in training, where a first frame is optional,
    "has_first_frame" [B], whether the example begins with it; in sampling, it does if one is given. A batch of which none does
    is given neither that nor the picture.
    A model of sections is also given "history" [B, C, N, h, w], what it has made of the video before, in model space, and in
    training, if that is to drift, "drift" [B, C, N, h, w] standard normal and "drift_level" [B] in [0, 1), the share of it.
    """

    spec: FamilySpec
    layout: ClassVar[FileLayout]  # of the single files that ComfyUI keeps this family's models in

    def __init__(self, files: ModelFiles) -> None:
        self.files, self.order = files, "auto"

    # files -----------------------------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def recognises(cls, files: ModelFiles) -> bool:
        """Whether the files are of a model of this family; reads JSON only."""

    @abstractmethod
    def check_files(self) -> None:
        """Raises UserError naming any missing or unsuitable file, before anything large is read."""

    @property
    @abstractmethod
    def transformer_class(self) -> type[ModelMixin]:
        """The diffusers class of the transformers."""

    def weight_classes(self) -> dict[str, type[nn.Module]]:
        """The class of each part that has weights, whether or not this model has the part."""
        return dict.fromkeys((expert.part for expert in self.spec.experts), self.transformer_class)

    def check_weights(self) -> None:
        """Raises UserError naming the first part whose tensors, by its files' headers, are not those of its configuration."""
        try:
            with without_broken():
                for part, kind in self.weight_classes().items():
                    if self.files.has(part):
                        self.files.require_fit(part, kind)
        except ImportError as error:
            raise fail(self.files.name, f"cannot be checked ({type(error).__name__}: {error}).", "Install what it names.") from error

    def load_transformer(self, dtype: torch.dtype, part: str = "transformer", weights: Weights = "as stored") -> ModelMixin:
        """A transformer on the CPU, in eval mode, without gradients; `weights` is how its linear layers are held."""
        transformer = self.files.load(part, self.transformer_class, dtype, weights).requires_grad_(False).eval()
        self.prepare_transformer(transformer)
        return transformer

    def prepare_transformer(self, transformer: nn.Module) -> None:  # noqa: B027 (most families need nothing)
        """Changes in a transformer of the class what training needs otherwise."""

    @cached_property
    def skeleton(self) -> nn.Module:
        """The transformer without weights, on the meta device: names and shapes, at no cost of memory."""
        return _skeleton(self.transformer_class, json.dumps(self.transformer_config, sort_keys=True))

    @property
    def transformer_config(self) -> dict[str, Any]:
        """The transformer's configuration; empty where no model is given, so that the class's defaults hold."""
        return self.files.config("transformer")

    @property
    def vae_dtype(self) -> torch.dtype:
        """Precision of the VAE; half precision costs most of them detail."""
        import torch

        return torch.float32

    @abstractmethod
    def load_vae(self) -> nn.Module:
        """The VAE on the CPU, in `vae_dtype`."""

    @abstractmethod
    def load_text_encoder(self, dtype: torch.dtype) -> TextEncoder:
        """Tokenizer and text encoder on the CPU."""

    def load_image_encoder(self, dtype: torch.dtype) -> ImageEncoder:
        """Processor and image encoder on the CPU, for families whose spec says that they have one."""
        raise NotImplementedError

    @cached_property
    def layer_shapes(self) -> dict[str, tuple[int, int]]:
        """[out, in] of every linear layer of the transformer, by module name."""
        from torch import nn

        layers = {name: layer for name, layer in self.skeleton.named_modules() if isinstance(layer, nn.Linear)}
        return {name: (layer.out_features, layer.in_features) for name, layer in layers.items()}

    # encoders --------------------------------------------------------------------------------------------------

    @abstractmethod
    def encode_video(self, vae: Any, frames: Tensor) -> dict[str, Tensor]:
        """Posterior mode of a clip, un-normalised: [F, H, W, 3] uint8 -> {"latents": [C, T, h, w] float32}."""

    def encode_conditions(
        self, vae: Any, encoder: ImageEncoder | None, pictures: Mapping[str, Tensor], size: tuple[int, int, int]
    ) -> dict[str, Tensor]:
        """What the model is given of pictures, cacheable: {"first_frame": [H, W, 3] uint8, …} of the spec's conditions.

        `size` is frames, height and width of the whole clip. A training clip gives its own first and last frame.
        """
        return {}

    @abstractmethod
    def decode_video(self, vae: Any, latents: Tensor) -> Tensor:
        """Model-space latents [1, C, T, h, w] -> frames [F, H, W, 3] uint8 on the CPU."""

    @abstractmethod
    def encode_text(self, encoder: TextEncoder, text: str, image: Tensor | None = None) -> dict[str, Tensor]:
        """Cacheable embeddings of one caption, padding cut off; a single embedding [L, D] is named "text".

        `image` [H, W, 3] uint8 is the first frame, for families whose text sees it; a negative prompt has none.
        """

    # the step: nothing here may read a tensor's numbers or make one of numbers, which waits for the device; see `constant` ------

    @abstractmethod
    def normalize(self, latents: Tensor) -> Tensor:
        """Cached latents [B, C, T, h, w] -> model space (about unit variance)."""

    @abstractmethod
    def text_inputs(self, texts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Cached embeddings of B captions -> batched transformer arguments, [B, ...] each.

        Where the model masks padding, they are as long as the longest, and there is a mask only if one is shorter.
        """

    @abstractmethod
    def denoiser_inputs(self, x: Tensor, sigma: Tensor, text: dict[str, Tensor], given: dict[str, Tensor]) -> dict[str, Any]:
        """The transformer's arguments at model-space x [B, C, T, h, w] and noise level sigma [B]."""

    def conditioned(self, x: Tensor, given: dict[str, Tensor]) -> Tensor:
        """X with what is given in it put in place, such as a clean first frame."""
        return x

    def loss_mask(self, x: Tensor, given: dict[str, Tensor]) -> Tensor | None:
        """1 where the loss counts and 0 where x is given, broadcastable to x; None if it counts everywhere."""
        return None

    def velocity(self, output: Any, x: Tensor, sigma: Tensor) -> Tensor:
        """The transformer's output as velocity noise - x0, [B, C, T, h, w]; families that predict it return it as it is."""
        return output[0]

    def text_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of a caption's embeddings by name, for plans that are made before any caption is encoded."""
        return {"text": (self.spec.text_length, self.spec.text_width)}

    def clip_shapes(self, frames: int, height: int, width: int) -> dict[str, tuple[int, ...]]:
        """Shapes of a clip's encoding, and of what is given of its pictures, by name, for plans made before any clip is encoded."""
        channels, _, rows, columns = self.spec.latent_shape(frames, height, width)
        count = (frames - 1) // self.spec.latent_stride[0] + 1  # not yet padded
        first = {"first_frame": (channels, 1, rows, columns)} if "first_frame" in self.spec.conditions else {}
        return {"latents": (channels, count, rows, columns), **first}

    def stack(self, encodings: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Encodings of B examples of one size as one batch."""
        import torch

        return {name: torch.stack([encoding[name] for encoding in encodings]) for name in encodings[0]}

    def model_inputs(self, batch: dict[str, Tensor], text: dict[str, Tensor], noise: Tensor, sigma: Tensor) -> ModelInputs:
        """Training inputs at noise level sigma [B]: batch["latents"] as cached and noise, both [B, C, T, h, w], and what is given."""
        given = {name: tensor for name, tensor in batch.items() if name != "latents"}
        x0 = self.normalize(batch["latents"])
        level = sigma.view(-1, 1, 1, 1, 1)
        x = self.conditioned((1 - level) * x0 + level * noise, given)
        return ModelInputs(self.denoiser_inputs(x, sigma, text, given), x, sigma, noise - x0, self.loss_mask(x, given))

    def predict(self, transformer: nn.Module, inputs: ModelInputs) -> Tensor:
        """Velocity predicted for training inputs, [B, C, T, h, w]."""
        return self.velocity(transformer(**inputs.kwargs, return_dict=False), inputs.x, inputs.sigma)

    # noise levels ----------------------------------------------------------------------------------------------

    def noise_level(self, time: Tensor) -> Tensor:
        """Sigma at a time in [0, 1] of the schedule that the model was made with; the same for rectified flows."""
        return time

    def sampling_level(self, time: Tensor) -> Tensor:
        """Sigma at a time in [0, 1] of the schedule that the model is sampled along, where its pipeline has one of its own."""
        return self.noise_level(time)

    def shift(self, latent_shape: Sequence[int], sampling: bool) -> float:
        """The default shift for latents [C, T, h, w]; families whose shift grows with the size compute it here."""
        return self.spec.sample_shift if sampling else self.spec.train_shift

    def loss_weight(self, sigma: Tensor) -> Tensor | None:
        """Weight of the velocity's squared error at sigma [B]; None weighs all alike."""
        return None

    # long videos -----------------------------------------------------------------------------------------------

    def choose_order(self, order: str) -> None:
        """Takes up the setting model.sampling_order, which means something to models of sections only."""
        self.order = order

    def section(self, encoding: dict[str, Tensor], number: int) -> dict[str, Tensor]:
        """Example `number` of a clip's encoding; a batch holds examples of one number."""
        return encoding

    def generate(self, denoise: Denoise, noise: Tensor, given: dict[str, Tensor]) -> Tensor:
        """A video's model-space latents from its starting noise [1, C, T, h, w]."""
        return denoise(noise, given)

    # LoRA ------------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def keys(self) -> KeyMap:
        """Names of the transformer's modules in diffusers and in ComfyUI."""

    @abstractmethod
    def write_comfy_files(self, transformer: Path, vae: Path) -> None:
        """Writes this folder's transformer and VAE as the single files that ComfyUI's loaders read."""

    @property
    def architecture(self) -> str:
        """The modelspec.architecture of LoRA files of this family."""
        return f"{self.spec.family}/lora"


@dataclass
class ImageEncoder:
    """Image processor and encoder module, moved and freed together."""

    processor: Callable[..., Any]
    module: nn.Module


@dataclass
class TextEncoder:
    """Tokenizer and encoder module, moved and freed together; a dict and a ModuleDict where a family has several."""

    tokenizer: Any
    module: nn.Module
    truncated: list[str] = field(default_factory=list)  # texts that were longer than the model reads


def constant(values: Sequence[float], like: Tensor) -> Tensor:
    """Numbers of a configuration as a tensor [N], copied once to each device: every copy of unpinned memory waits for the device."""
    return _constant(tuple(values), like.device, like.dtype)


@lru_cache(maxsize=64)
def _constant(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    import torch

    with kept():
        return torch.tensor(values, device=device, dtype=dtype)


@contextmanager
def kept() -> Iterator[None]:
    """Inside the block tensors are made to be kept: with values though a rehearsal may be on, and for training in inference mode too."""
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with torch.inference_mode(False), unset_fake_temporarily():
        yield


@lru_cache(maxsize=32)  # variants often differ in other parts only
def _skeleton(kind: Any, config: str) -> nn.Module:
    from accelerate import init_empty_weights

    with init_empty_weights():
        return kind.from_config(json.loads(config))
