"""musubi-tuner's files and what they hold: commands by their program, and TOML of settings, of datasets or of both."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from ..errors import fail
from .documents import Document, lines_of
from .musubi_dataset import is_dataset, is_general
from .musubi_rules import TRAINING
from .musubi_training import TOGETHER
from .result import last_part
from .rules import find_rule

FAMILIES = {"hv_1_5": "HunyuanVideo-1.5", "hv": "HunyuanVideo", "wan": "Wan", "fpack": "FramePack"}  # as its programs begin
_OTHERS = ("qwen_image", "zimage", "flux_kontext", "flux_2", "kandinsky5", "hidream_o1", "ideogram4", "krea2")
_PROGRAM = re.compile(rf"(?:({'|'.join((*FAMILIES, *_OTHERS))})_(?:train|train_network|cache_\w+)|cache_(?:latents|text_encoder_outputs))")
_ARGUMENTS = ("optimizer_args", "network_args", "lr_scheduler_args")  # each of name=value
_OWN = {  # settings that no other trainer has in a TOML, but for sd-scripts, whose model has a name of its own
    "dit", "dit_high_noise", "network_module", "network_dim", "network_args", "network_weights", "timestep_sampling",
    "discrete_flow_shift", "fp8_base", "fp8_scaled", "optimizer_type", "max_train_steps", "max_train_epochs",
}  # fmt: skip
_OF_OTHERS = {"pretrained_model_name_or_path", "training_method"}


def program(document: Document) -> str:
    """The program of a command without its package and ending, such as "wan_train_network"; empty if it is none of musubi-tuner's."""
    name = document.program.removesuffix(".py").rpartition(".")[2]
    return name if _PROGRAM.fullmatch(name) else ""


def model_of(document: Document) -> str:
    """What the program of a command trains, as programs begin; empty for a file that is no command."""
    found = _PROGRAM.fullmatch(program(document))
    return (found[1] or "hv") if found else ""


def is_command(document: Document) -> bool:
    """A command that trains or encodes."""
    return program(document) != ""


def encodes(document: Document) -> bool:
    """A command that encodes clips or captions."""
    return "cache_" in program(document)


def is_settings(document: Document) -> bool:
    """What --config_file names: settings of a command, in any sections; one is its own, or all are known to be its."""
    if document.program:
        return False
    names = set(_flat_names(document))
    known = names & _OWN or all(name in TOGETHER or find_rule(TRAINING, name) for name in names)
    return bool(names and known) and not names & _OF_OTHERS


def config_file(document: Document) -> str:
    """The name of the TOML of settings that a command names, with its ending, which may be left out there; empty if it names none."""
    entry = document.entry("config_file")
    name = last_part(str(entry.value)) if entry else ""
    return name if not name or name.endswith(".toml") else f"{name}.toml"


def parts(document: Document) -> list[Document]:
    """A file as its datasets and its settings, which are flat, if it has both; a command is one part."""
    if document.program or not is_dataset(document):
        return [_flat(document)]
    general = document.data.get("general")
    shared = general if isinstance(general, dict) else {}
    datasets = {"general": {name: value for name, value in shared.items() if is_general(name)}, "datasets": document.data["datasets"]}
    rest = {name: value for name, value in document.data.items() if name not in datasets}
    rest |= {name: value for name, value in shared.items() if not is_general(name)}
    settings = replace(document, data=rest)
    if not is_settings(settings):
        return [document]
    return [replace(document, data={name: value for name, value in datasets.items() if value}), _flat(settings)]


def _flat_names(document: Document) -> list[str]:
    return [name for section, value in document.data.items() for name in (value if isinstance(value, dict) and value else [section])]


def _flat(document: Document) -> Document:
    """Settings without the sections that they stand in, and arguments of name=value as settings of that name.

    Raises UserError for a setting with different values in two sections, of which only the last would count.
    """
    data: dict[str, Any] = {}
    for section, value in document.data.items():
        inside = value if isinstance(value, dict) and value and section not in ("launcher", "environment") else {section: value}
        for name, given in inside.items():
            if name in data and data[name] != given:
                lines = " and ".join(map(str, lines_of(document.path, name)))
                raise fail(f"{document.path}, lines {lines}", f"{name} has several values.", "Keep the one that holds.")
            data[name] = given
    for name in _ARGUMENTS:
        given = data.get(name)
        words = [str(part).partition("=") for part in (given if isinstance(given, list) else [given])]
        if words and all(key and sign for key, sign, _ in words):
            data[name] = {key.strip(): value.strip() for key, _, value in words}
    return replace(document, data=data)
