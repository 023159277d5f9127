"""The model families: one dict from name to class, each loaded only when asked for."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from ..errors import fail, nearest
from .base import ModelFamily
from .files import DiffusersFolder, NoFiles

FAMILIES = {"wan": ".wan", "ltx_video": ".ltx_video", "cogvideox": ".cogvideox"}


def family_class(name: str) -> type[ModelFamily]:
    """The class of a family by name; raises UserError naming the closest known one."""
    if name not in FAMILIES:
        raise fail("model.family", f"'{name}' is unknown.", nearest(name, list(FAMILIES)))
    return import_module(FAMILIES[name], __package__).Family


def known_family(name: str) -> ModelFamily:
    """A family without any model's files, for names and layers; sizes are those of its main release."""
    return family_class(name)(NoFiles(name))


def open_model(folder: Path, family: str = "") -> ModelFamily:
    """The family object of a diffusers folder, its files checked; raises UserError if none recognises it."""
    if not folder.is_dir():
        raise fail("model.source", f"'{folder}' is not a folder.", "Give a diffusers model folder or a hub id (owner/name).")
    if not (folder / "model_index.json").is_file():
        raise fail("model.source", f"'{folder}' holds no model_index.json.", "A diffusers folder has one beside transformer/, vae/, ….")
    candidates = [family_class(family)] if family else [family_class(name) for name in FAMILIES]
    files = DiffusersFolder(folder)
    for candidate in candidates:
        if candidate.recognises(files):
            model = candidate(files)
            model.check_files()
            return model
    raise fail("model.source", f"'{folder}' is not a model of a known family.", f"Families: {', '.join(FAMILIES)}.")
