"""What a family says of the single files that ComfyUI keeps its models in: `ModelFamily.layout`.

Each family has, in its folder,

    configs/<variant>/<part>.json    for each variant and part: transformer, vae, text_encoder, text_encoder_2, …, tokenizer, …,
                                     image_encoder, image_processor, scheduler, model_index
    configs/<part>.json              of parts that are the same in all variants
    a FileLayout                     how its files are told apart, and what their tensors are called

The JSON files hold what the files of the same parts hold in the release's diffusers folder: <part>/config.json,
scheduler_config.json, tokenizer_config.json, preprocessor_config.json, model_index.json. What a header tells, such as sizes,
replaces what stands there, so that small models need no configuration of their own. Two variants whose files look alike, such
as those of two resolutions, are told apart by the setting model.variant; without it by the file's name (`file_names`), by
whether an image encoder is given, and in the end the first by name is the default.

A model of two transformers has "transformer_2" in its model_index.json; both have the configuration of `transformer`.
Parts that a variant has no JSON file for do not exist in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .key_map import KeyMap
from .shapes import Shapes

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Told:
    """What a header tells of a part: values of its configuration, or the name of a variant that cannot be trained."""

    values: dict[str, Any] = field(default_factory=dict)
    unsupported: str = ""


def same(_: Config) -> Hashable:
    """The trait of kinds whose files differ in size only."""
    return None


def latent_channels(config: Config) -> Hashable:
    """The trait of most VAEs."""
    return f"{config['latent_channels']} latent channels"


@dataclass(frozen=True)
class PartKind:
    """A kind of file, or of the tensors below a prefix of one.

    `read` gives what the shapes tell, or None where they are of another kind. `keys` names its modules in diffusers or
    transformers and in the file, by its configuration; None where both names are the same but for a prefix. `trait` is
    what the file's configuration and the variant's must agree in. `computed` are tensors that files may hold though the
    model makes them itself.
    """

    label: str  # in errors, such as "a Mochi VAE"
    read: Callable[[Shapes], Told | None]
    keys: Callable[[Config], KeyMap] | None = None
    trait: Callable[[Config], Hashable] = same
    computed: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileLayout:
    """The single files of a family."""

    configs: Path  # the folder of the variants' configurations
    transformer: PartKind
    vaes: tuple[PartKind, ...]
    encoders: Mapping[str, str] = field(default_factory=dict)  # part -> kind, a name in encoder_kinds.ENCODERS
    tokenizers: Mapping[str, str] = field(default_factory=dict)  # part -> encoder_kinds.SENTENCEPIECE, or a folder below ComfyUI's comfy/
    agreements: tuple[tuple[str, str, str, str], ...] = ()  # part, value, other part, its value: must be equal
    file_names: Mapping[str, str] = field(default_factory=dict)  # variant -> regex of file names that tell it from those that look alike

    @property
    def variants(self) -> list[str]:
        """The variants that ship, by name."""
        return sorted(folder.name for folder in self.configs.iterdir() if (folder / "transformer.json").is_file())

    def file(self, variant: str, part: str) -> Path | None:
        """The file of a part's configuration; None if the variant has no such part."""
        if part.startswith("transformer_"):
            return self.file(variant, "transformer") if part in self.config(variant, "model_index") else None
        candidates = (self.configs / variant / f"{part}.json", self.configs / f"{part}.json")
        return next((file for file in candidates if file.is_file()), None)

    def config(self, variant: str, part: str) -> dict[str, Any]:
        """A part's configuration as it ships; empty if the variant has no such part."""
        file = self.file(variant, part)
        return json.loads(file.read_text(encoding="utf-8")) if file else {}

    def parts(self, variant: str) -> list[str]:
        """The parts of a variant that have a configuration."""
        files = (*(self.configs / variant).glob("*.json"), *self.configs.glob("*.json"))
        second = [part for part in self.config(variant, "model_index") if part.startswith("transformer_")]
        return sorted({*(file.stem for file in files), *second})


def overlaid(config: Config, values: Config) -> dict[str, Any]:
    """A configuration with values put in their places, which may lie in the part of a composite one."""
    made = {name: dict(value) if isinstance(value, dict) else value for name, value in config.items()}
    for name, value in values.items():
        inside = next((part for part in ("text_config", "vision_config") if name not in made and name in made.get(part, {})), "")
        (made[inside] if inside else made)[name] = value
    return made
