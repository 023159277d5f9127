"""What kind of file this is, told from its header alone, and what to say of one that does not belong where it was put."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .encoder_kinds import ENCODERS
from .layout import FileLayout, PartKind, Told
from .shapes import Shapes
from .stored import StoredPart
from .tensor_file import TensorFile

TRANSFORMER_PREFIXES = ("model.diffusion_model.", "diffusion_model.", "model.model.", "model.", "net.", "")
VAE_PREFIXES = ("vae.", "first_stage_model.", "")
ENCODER_PREFIXES = ("transformer.", "")
INSIDE = re.compile(r"text_encoders\.\w+\.transformer\.")  # before a text encoder's names in a checkpoint of all parts
LORA = (".lora_A.weight", ".lora_down.weight", ".lora_A.default.weight", ".lora.down.weight", ".hada_w1_a", ".lokr_w1", ".lokr_w1_a")
OTHERS = {  # a tensor that only this kind has -> what it is
    "model.diffusion_model.input_blocks.0.0.weight": "a Stable Diffusion checkpoint",
    "model.diffusion_model.joint_blocks.0.context_block.attn.qkv.weight": "a Stable Diffusion 3 checkpoint",
    "joint_blocks.0.context_block.attn.qkv.weight": "a Stable Diffusion 3 model",
    "img_in.weight": "a Flux model",
    "time_text_embed.timestep_embedder.linear_1.weight": "a model in diffusers' names: give its whole folder",
    "transformer_blocks.0.attn1.to_q.weight": "a model in diffusers' names: give its whole folder",
    "control_model.input_blocks.0.0.weight": "a ControlNet",
    "controlnet_cond_embedding.conv_in.weight": "a ControlNet",
    "vision_model.embeddings.class_embedding": "a CLIP vision encoder",
    "vision_model.embeddings.patch_embedding.weight": "a vision encoder",
    "model.embed_tokens.weight": "a language model",
    "decoder.conv_in.weight": "a VAE",
    "decoder.conv1.weight": "a VAE",
    "taesd_decoder.1.weight": "a tiny VAE for previews",
    "0.weight": "an upscaler",
}  # fmt: skip


@dataclass(frozen=True)
class Match:
    """A part of a model inside a file."""

    kind: PartKind
    part: StoredPart
    told: Told

    @property
    def path(self) -> Path:
        """The file."""
        return self.part.file.path


def matched(file: TensorFile, kind: PartKind, prefixes: Sequence[str]) -> Match | None:
    """The tensors of a kind in a file; raises UserError if they are quantised in a way that is not known."""
    shapes = file_shapes(file)
    for prefix in prefixes:
        if (told := _told(kind, shapes.below(prefix))) is not None:
            return Match(kind, StoredPart(file, prefix), told)
    return None


def _told(kind: PartKind, shapes: Shapes) -> Told | None:
    """What a kind reads of the shapes; nothing of those in which it looks for tensors in vain."""
    try:
        return kind.read(shapes) if shapes else None
    except (LookupError, ValueError, TypeError, ArithmeticError):
        return None


def encoder_prefixes(file: TensorFile) -> list[str]:
    """Where a text encoder may lie in a file: alone, or inside a checkpoint below text_encoders.<name>."""
    inside = {match[0] for name in file.tensors if (match := INSIDE.match(name))}
    return [*sorted(inside), *ENCODER_PREFIXES]


def file_shapes(file: TensorFile) -> Shapes:
    """The shapes of all of a file's tensors."""
    return Shapes({name: stored.shape for name, stored in file.tensors.items()}, file.metadata)


def description(file: TensorFile, layouts: Mapping[str, FileLayout]) -> str:
    """What a file is, in a few words."""
    if any(name.endswith(LORA) for name in file.tensors):
        return "a LoRA"
    shapes = file_shapes(file)
    for kind, prefixes in _known_kinds(file, layouts):
        for prefix in prefixes:
            if (told := _told(kind, shapes.below(prefix))) is not None:
                return f"{kind.label}, {told.unsupported}" if told.unsupported else kind.label
    found = next((what for name, what in OTHERS.items() if name in file.tensors), "")
    first = next(iter(file.tensors), None)
    return found or (f"a file of an unknown kind (its first tensor is '{first}')" if first else "a file without tensors")


def _known_kinds(file: TensorFile, layouts: Mapping[str, FileLayout]) -> Iterator[tuple[PartKind, Sequence[str]]]:
    for layout in layouts.values():
        yield layout.transformer, TRANSFORMER_PREFIXES
    for kind in ENCODERS.values():
        yield kind, encoder_prefixes(file)
    for layout in layouts.values():
        yield from ((kind, VAE_PREFIXES) for kind in layout.vaes)
