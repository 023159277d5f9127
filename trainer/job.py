"""TrainingJob: the one definition of every setting, with its label, unit, range, default and text."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from .caption_settings import CaptionEdit, CaptionSettings
from .dataset_settings import DatasetSettings, WindowSettings
from .errors import Place, UserError, fail, from_validation
from .job_versions import JOB_VERSION, upgraded
from .optimizer_settings import OptimizerSettings
from .placed_settings import right_place, section_names
from .settings import Settings, Text, setting
from .size_settings import Bucket, from_text
from .source_settings import SOURCES, ParquetFolder, Source, VideoFolder

LONGEST_NAME = 100  # bytes; step numbers and endings are added to it
MODEL_FILES = ("transformer", "transformer_low", "vae", "image_encoder")  # settings of single files, beside text_encoders
RESERVED_NAMES = {"CON", "PRN", "AUX", "NUL", *(f"{port}{n}" for port in ("COM", "LPT") for n in range(1, 10))}


class ModelSettings(Settings):
    """The model to train: a diffusers folder, or the single files that ComfyUI loads."""

    source: str = setting("", "Model", "A diffusers model folder, or a hub id such as owner/name; empty if single files are given.")
    transformer: str = setting("", "Diffusion model", "A single file of the diffusion model, .safetensors or .gguf.")
    transformer_low: str = setting("", "Low-noise model", "Of a model in two, the file for low noise levels.")
    vae: str = setting("", "VAE", "The VAE's file; empty takes the one inside the diffusion model's file.")
    text_encoders: list[str] = setting(list, "Text encoders", "The files of the text encoders, in any order.")
    image_encoder: str = setting("", "Image encoder", "The CLIP vision file, for models that look at pictures through one.")
    variant: str = setting(
        "", "Variant", "Of variants whose files look alike, such as those of two resolutions, the one to take; empty takes the first.",
        advanced=True,
    )  # fmt: skip
    tokenizers: str = setting(
        "", "Tokenizers", "The folder comfy of a ComfyUI installation, for text encoders whose files hold no tokenizer.", advanced=True
    )
    family: str = setting("", "Family", "Model family; empty recognises it from the model's files.", advanced=True)
    expert: Literal["all", "high", "low"] = setting(
        "all", "Experts", "Of models with two experts, the one for high noise levels, the one for low ones, or all in turns. "
        "Other models have one.", advanced=True,
    )  # fmt: skip
    sampling_order: Literal["auto", "backward", "forward"] = setting(
        "auto", "Order of sections", "Of models that make long videos section by section, the order that they were trained for: backward "
        "from the end of the video, or forward. auto goes by the model's name. Other models make a video at once.", advanced=True,
    )  # fmt: skip

    @property
    def files(self) -> list[str]:
        """The single files that are named."""
        named = (self.transformer, self.transformer_low, self.vae, *self.text_encoders, self.image_encoder)
        return [name for name in named if name.strip()]

    def at_absolute_paths(self) -> ModelSettings:
        """A copy whose relative paths of things that exist are absolute."""
        return self.with_paths(_absolute)

    def with_paths(self, place: Callable[[str], str]) -> ModelSettings:
        """A copy with every path as `place` gives it."""
        paths = {name: place(getattr(self, name)) for name in ("source", *MODEL_FILES, "tokenizers")}
        return self.model_copy(update={**paths, "text_encoders": [place(name) for name in self.text_encoders]})


class AdapterSettings(Settings):
    """The LoRA that is trained."""

    rank: int = setting(16, "Rank", "Size of the LoRA: higher learns more and makes a larger file.", ge=1, le=512)
    alpha: float = setting(
        0.0, "Alpha", "LoRA strength is alpha / rank; 0 sets alpha equal to rank.", ge=0, le=1024, step=0.5, advanced=True
    )
    dropout: float = setting(0.0, "Dropout", "Share of LoRA activations dropped in training.", ge=0, le=0.95, step=0.05, advanced=True)
    targets: Literal["all", "attention", "feed-forward"] = setting("all", "Layers", "Which linear layers of the blocks get a LoRA.")
    continue_from: str = setting(
        "", "Continue from", "A LoRA file to go on training; empty starts anew. Of models with two experts either file of the pair: "
        "the other lies beside it under the same name with high for low.", advanced=True,
    )  # fmt: skip
    precision: Literal["fp32", "bf16"] = setting(
        "fp32", "LoRA precision", "How the LoRA is kept while it is trained; its file is fp32. bf16 takes half the memory and is a little "
        "less exact: each step is computed in fp32 and rounded up or down by chance, so that small steps are not lost.", advanced=True,
    )  # fmt: skip

    @property
    def effective_alpha(self) -> float:
        """Alpha with the default applied."""
        return self.alpha or float(self.rank)


class ObjectiveSettings(Settings):
    """What the model learns at each step: flow matching, and how noise levels are drawn."""

    timesteps: Literal["logit-normal", "uniform"] = setting(
        "logit-normal", "Timesteps", "Distribution of noise levels: logit-normal favours the middle, uniform takes all alike."
    )
    shift: float = setting(
        0.0, "Shift", "Moves the noise levels of training upwards (>1) or downwards (<1); 0 uses the model's own.", ge=0, le=100, step=0.5
    )
    guidance: float = setting(
        0.0, "Training guidance", "What guidance-distilled models are fed as guidance in training; 0 uses the family's value, others "
        "have no such input.", ge=0, le=30, step=0.5, advanced=True,
    )  # fmt: skip
    history_noise: float = setting(
        0.0, "History noise", "Of models that make long videos section by section: up to this share of noise is mixed into the sections "
        "that were made before, drawn for each example. Clips are cleaner than what a model makes, and long videos drift if it has only "
        "seen those. 0: none.", ge=0, le=1, step=0.05, advanced=True,
    )  # fmt: skip
    first_frame_probability: float = setting(
        0.5, "First frame probability", "Share of examples that begin with their own first frame, for models that can start from a "
        "picture or from none; the others learn text to video.", ge=0, le=1, step=0.05, advanced=True,
    )  # fmt: skip
    snr_gamma: float = setting(
        0.0, "Min-SNR gamma", "Weighs noise levels by min(signal-to-noise ratio, gamma), which takes weight from the highest; 5 is "
        "usual, 0 uses the model's own weights.", ge=0, le=100, step=0.5, advanced=True,
    )  # fmt: skip
    logit_mean: float = setting(0.0, "Logit mean", "Mean of the logit-normal distribution.", ge=-5, le=5, step=0.1, advanced=True)
    logit_std: float = setting(1.0, "Logit deviation", "Deviation of the logit-normal distribution.", gt=0, le=5, step=0.1, advanced=True)


class ScheduleSettings(Settings):
    """How long to train."""

    steps: int = setting(1000, "Steps", "Optimizer steps to train.", unit="steps", ge=1, le=1000000)
    batch_size: int = setting(
        1,
        "Batch size",
        "Examples in a batch. Where that saves memory or time it is computed in parts, which changes no more than rounding.",
        ge=1,
        le=256,
    )
    accumulation: int = setting(
        1, "Accumulation", "Batches whose gradients are added up for one optimizer step.", ge=1, le=1024, advanced=True
    )
    seed: int = setting(0, "Seed", "Seed of every random draw of the run.", ge=0, le=2**53 - 1)
    switch_every: int = setting(
        10, "Switch experts every", "Steps that one of two experts is trained before it is the other's turn.", unit="steps",
        ge=1, le=100000, advanced=True,
    )  # fmt: skip
    video_batch_size_multiplier: float = setting(
        1.0, "Video batch multiplier", "A batch of clips of more than one frame has batch size × this of them, rounded, at least one, so "
        "that images can have larger batches than videos. A step averages over batch size × accumulation examples all the same.",
        ge=0.001, le=256, step=0.05, advanced=True,
    )  # fmt: skip

    @property
    def video_batch_size(self) -> int:
        """Examples in a batch of clips of more than one frame."""
        return max(1, round(self.batch_size * self.video_batch_size_multiplier))


class ComputeSettings(Settings):
    """Where and how exactly to compute."""

    device: str = setting("auto", "Device", "auto, cpu, cuda or cuda:N.", advanced=True)
    dtype: Literal["auto", "fp32", "bf16", "fp16"] = setting(
        "auto",
        "Precision",
        "Arithmetic of the frozen model; adapter.precision is that of the LoRA. auto: bf16 on a card that has it, else fp32.",
    )
    deterministic: bool = setting(
        False, "Deterministic", "Repeatable to the bit on a GPU too, at some cost of speed; on a CPU always so.", advanced=True
    )
    compile: Literal["auto", "on", "off"] = setting(
        "auto", "Compile", "Compiles each block of the model: about 1.3 times as fast, after a minute or two at the start. auto: where the "
        "card and the installed Triton can and the run is long enough to gain by it.", advanced=True,
    )  # fmt: skip
    fp8_products: Literal["auto", "on", "off"] = setting(
        "auto", "fp8 products", "Multiplies with the frozen weights in fp8, which cards of compute capability 8.9 (RTX 40) and newer do "
        "about twice as fast; the LoRA itself never. auto: where the card can, the model is compiled and its weights are in fp8.",
        advanced=True,
    )  # fmt: skip
    attention: Literal["auto", "flash", "cudnn", "efficient", "math", "flash-attn 2", "flash-attn 3"] = setting(
        "auto", "Attention", "The kernel of attention, the same through a run: PyTorch's own or those of an installed flash-attn. "
        "auto takes the fastest that is there.", advanced=True,
    )  # fmt: skip
    sampling_attention: Literal["as in training", "sage"] = setting(
        "as in training", "Attention of samples", "sage draws sample videos by an installed SageAttention: faster and a little less exact.",
        advanced=True,
    )  # fmt: skip


class MemorySettings(Settings):
    """What is traded for memory. What is left at auto is chosen so that the run fits into the card."""

    fit_into: float = setting(
        0.0, "Fit into", "Memory of the card that training may take, in GB of 2^30 bytes as cards are sold, the driver's part counted; 0 "
        "takes what other programs leave free. Weights, offloading and checkpointing that are left at auto are chosen by it.",
        unit="GB", ge=0, le=1024, step=1,
    )  # fmt: skip
    gradient_checkpointing: Literal["auto", "off", "light", "selective", "full", "offloaded"] = setting(
        "auto", "Gradient checkpointing", "Computes activations again instead of keeping them. light keeps what attention and matrix "
        "products gave; selective what attention gave, the dearest part; full only what goes into each block; offloaded keeps that in the "
        "host's memory. auto: the fastest that fits, for some blocks another than for the rest.",
        advanced=True,
    )  # fmt: skip
    weights: Literal["auto", "as stored", "unquantized", "fp8", "int8", "nf4"] = setting(
        "auto", "Frozen weights", "How the model's linear layers are held: as their file stores them, unpacked to the run's precision, or "
        "quantised while they are loaded, to 1 byte (fp8, int8) or half a byte (nf4) each. auto: the most exact that fits.", advanced=True,
    )  # fmt: skip
    layer_offload_fraction: float = setting(
        -1.0, "Layer offload", "Share of the model's blocks whose weights lie in the host's memory and are copied to the card just before "
        "they are used, 0 to 1; auto, in numbers -1, offloads as many as must be.", ge=-1, le=1, step=0.1, auto=-1.0, advanced=True,
    )  # fmt: skip
    vae_tiling: bool = setting(
        False, "VAE tiling", "Encodes clips and decodes sample videos in overlapping tiles of the frame: less memory, but other latents "
        "than whole frames give, so clips are encoded again.", advanced=True,
    )  # fmt: skip
    vae_slicing: bool = setting(
        False, "VAE slicing", "Takes the clips of a batch through the VAE one by one. Here they always are, so latents stay the same.",
        advanced=True,
    )  # fmt: skip

    @field_validator("layer_offload_fraction", mode="before")
    @classmethod
    def _left_open(cls, share: Any) -> Any:
        return -1.0 if share == "auto" else share

    @field_validator("layer_offload_fraction")
    @classmethod
    def _a_share(cls, share: float) -> float:
        if share < 0 and share != -1:
            raise ValueError("a share is from 0 to 1, or auto (-1) to offload as many blocks as must be")
        return share


class SamplePrompt(Settings):
    """One sample video to draw while training."""

    prompt: Text = setting("", "Prompt", "What to show.")
    negative: Text = setting("", "Negative", "What to avoid.")
    size: Bucket | None = setting(None, "Size", "Frames x height x width; empty uses the first bucket.")
    seed: int = setting(0, "Seed", "Seed of the starting noise.", ge=0, le=2**53 - 1)
    image: str = setting("", "First frame", "Image file to start from, for families that take one.")
    last_image: str = setting("", "Last frame", "Image file to end at, for families that take one.")

    @field_validator("size", mode="before")
    @classmethod
    def _from_text(cls, size: Any) -> Any:
        """Sizes may be written as text, as those of clips."""
        return from_text(Bucket, size) if isinstance(size, str) else size


class SampleSettings(Settings):
    """Sample videos drawn before the first step and while training."""

    prompts: list[SamplePrompt] = setting(list, "Prompts", "Empty: captions of two clips.")
    every: int = setting(250, "Every", "Steps between sample videos; 0 draws none.", unit="steps", ge=0, le=1000000)
    steps: int = setting(20, "Sampling steps", "Denoising steps of a sample video.", unit="steps", ge=1, le=1000)
    guidance: float = setting(0.0, "Guidance", "Strength of classifier-free guidance; 0 uses the model's own.", ge=0, le=30, step=0.5)
    shift: float = setting(
        0.0, "Shift", "Shift of the sampling noise levels; 0 uses the model's own.", ge=0, le=100, step=0.5, advanced=True
    )


class OutputSettings(Settings):
    """What the run is called and what it keeps."""

    name: str = setting("video-lora", "Name", "Name of the run and of its LoRA file.")
    save_every: int = setting(
        250, "Save every", "Steps between checkpoints; the last step is always saved.", unit="steps", ge=1, le=1000000
    )
    keep: int = setting(3, "Keep", "Newest checkpoints kept for resuming; exported LoRA files are all kept.", ge=1, le=1000, advanced=True)
    if_exists: Literal["continue", "start new"] = setting(
        "continue",
        "If the run exists",
        "continue: return its result, resume it or train it further. start new: train again under a new name.",
    )

    @field_validator("name")
    @classmethod
    def _plain_name(cls, name: str) -> str:
        if not name.strip() or name.strip(". ") != name or set(name) & set('/\\<>:"|?*') or not name.isprintable():
            raise ValueError('a name cannot be empty, hold / \\ < > : " | ? * or line breaks, or begin or end with a dot or space')
        if len(name.encode()) > LONGEST_NAME:
            raise ValueError(f"a name has at most {LONGEST_NAME} bytes")
        if name.partition(".")[0].upper() in RESERVED_NAMES:
            raise ValueError("Windows keeps this name for a device")
        return name


class TrainingJob(Settings):
    """All settings of a training run; `job.json` in the run folder replays it."""

    version: int = JOB_VERSION
    model: ModelSettings = Field(default_factory=ModelSettings)
    dataset: DatasetSettings = Field(default_factory=DatasetSettings)
    captions: CaptionSettings = Field(default_factory=CaptionSettings)
    adapter: AdapterSettings = Field(default_factory=AdapterSettings)
    objective: ObjectiveSettings = Field(default_factory=ObjectiveSettings)
    optimizer: OptimizerSettings = Field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = Field(default_factory=ScheduleSettings)
    compute: ComputeSettings = Field(default_factory=ComputeSettings)
    memory: MemorySettings = Field(default_factory=MemorySettings)
    samples: SampleSettings = Field(default_factory=SampleSettings)
    output: OutputSettings = Field(default_factory=OutputSettings)

    @classmethod
    def parse(cls, data: dict[str, Any]) -> TrainingJob:
        """Checks a plain dict; raises UserError listing every problem with setting, value and cure."""
        try:
            return cls.model_validate(upgraded(data))
        except ValidationError as error:
            raise from_validation(error, _known_at, kinds=list(SOURCES), hint=partial(right_place, cls)) from None

    @classmethod
    def load(cls, path: Path) -> TrainingJob:
        """Reads a job file; raises UserError naming the file and line of a JSON fault."""
        try:
            data = json.loads(path.read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise fail(str(path), f"cannot be read: {error.strerror}.", "Give the path of a job.json.") from None
        except (ValueError, RecursionError) as error:
            raise fail(str(path), f"is not JSON: {error}.", "In JSON a backslash of a path is written \\\\.") from None
        if not isinstance(data, dict):
            raise fail(str(path), "is not a job.", "A job is a JSON object with model, dataset, ….")
        return cls.parse(data)

    def with_absolute_paths(self) -> TrainingJob:
        """A copy whose relative paths of things that exist are absolute, so that the job means the same from any folder."""
        sources = [_source_at_absolute(source) for source in self.dataset.sources]
        pictures = ("image", "last_image")
        prompts = [p.model_copy(update={name: _absolute(getattr(p, name)) for name in pictures}) for p in self.samples.prompts]
        return self.model_copy(
            update={
                "model": self.model.at_absolute_paths(),
                "dataset": self.dataset.model_copy(update={"sources": sources}),
                "adapter": self.adapter.model_copy(update={"continue_from": _absolute(self.adapter.continue_from)}),
                "samples": self.samples.model_copy(update={"prompts": prompts}),
            }
        )

    def overridden(self, changes: list[str]) -> TrainingJob:
        """A copy with "part.setting=value" changes, values as JSON or plain text; raises UserError for what is not accepted."""
        data = self.model_dump(mode="json")
        for change in changes:
            path, separator, text = change.partition("=")
            *parts, name = path.strip().split(".")
            part: Any = data
            for key in parts:
                part = part.get(key) if isinstance(part, dict) else None
            if not separator or not isinstance(part, dict):
                raise fail(change, "is not a change of a setting.", "Write part.setting=value, such as schedule.steps=500.")
            part[name] = text if isinstance(part.get(name), str) else _json_or_text(text)
        return self.parse(data)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # a number of thousands of digits is not a JSONDecodeError
        return text


def _source_at_absolute(source: Source) -> Source:
    source = source.at(_absolute(source.location))
    if isinstance(source, ParquetFolder):
        return source.model_copy(update={"encoder": _absolute(source.encoder)})
    return source.model_copy(update={"caption_file": _absolute(source.caption_file)}) if isinstance(source, VideoFolder) else source


def _absolute(path: str) -> str:
    try:
        return str(Path(path).absolute()) if path and Path(path).exists() else path
    except (OSError, ValueError):  # not a path at all
        return path


def _known_at(place: Place) -> list[str]:
    """The settings of the part that a wrong one stands in."""
    return section_names(TrainingJob, place[:-1])


__all__ = [
    "Bucket",
    "CaptionEdit",
    "CaptionSettings",
    "DatasetSettings",
    "OptimizerSettings",
    "Settings",
    "TrainingJob",
    "UserError",
    "VideoFolder",
    "WindowSettings",
    "setting",
]
