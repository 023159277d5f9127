"""A part's small files in a folder, as transformers' `from_pretrained` takes them: tokenizers and processors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..errors import Problem, fail
from .layout import Config
from .sentencepiece_file import unigram_tokenizer

SMALL = (".json", ".txt", ".model")  # endings of a tokenizer's files

SETTINGS = ("tokenizer_config.json", "special_tokens_map.json")  # of a tokenizer, which without other files is none


def config_file(part: str) -> str:
    """What a part's configuration is called in a diffusers folder."""
    if "tokenizer" in part:
        return "tokenizer_config.json"
    return "preprocessor_config.json" if part in ("image_processor", "feature_extractor") else "config.json"


def write_small_files(folder: Path, part: str, config: Config) -> None:
    """The part's configuration alone: all that processors need, and tokenizers of bytes."""
    folder.mkdir(parents=True)
    (folder / config_file(part)).write_text(json.dumps(dict(config)), encoding="utf-8")


def write_sentencepiece(folder: Path, part: str, config: Config, model: bytes, where: Path) -> None:
    """A tokenizer out of the SentencePiece model in a text encoder's file; raises UserError naming that file."""
    write_small_files(folder, part, config)
    try:
        unigram_tokenizer(model).save(str(folder / "tokenizer.json"))
    except ValueError as error:
        raise fail(str(where), f"has a tokenizer that cannot be used: {error}.", "Download it again.") from None


def copy_tokenizer(folder: Path, part: str, config: Config, files: Sequence[Path]) -> None:
    """A tokenizer out of ComfyUI's files, with our configuration in the place of its own."""
    write_small_files(folder, part, config)
    for file in files:
        if file.name != config_file(part):
            shutil.copyfile(file, folder / file.name)


def tokenizer_files(comfy: Path, name: str) -> list[Path]:
    """The files of a tokenizer that ComfyUI brings, below its folder `comfy`; none if it has no such tokenizer."""
    folder = comfy / name
    return sorted(file for file in folder.iterdir() if file.suffix in SMALL) if folder.is_dir() else []


def tokenizer_problem(comfy: Path | None, name: str) -> Problem | None:
    """What is wrong with the setting model.tokenizers, for a text encoder that brings no tokenizer."""
    cure = "Give the folder comfy of a ComfyUI installation, or the model as a diffusers folder."
    if comfy is None:
        return Problem("model.tokenizers", "is empty, and this text encoder's file holds no tokenizer.", cure)
    if all(file.name in SETTINGS for file in tokenizer_files(comfy, name)):
        return Problem("model.tokenizers", f"'{comfy}' has no {name}.", cure)
    return None
