"""The model families: one dict from name to class, each loaded only when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError, fail, nearest
from ..files import kind_of
from .assembly import open_single_files
from .base import ModelFamily
from .files import DiffusersFolder, ModelFiles, NoFiles
from .layout import FileLayout
from .soundness import require_sound

if TYPE_CHECKING:
    from ..job import ModelSettings

FAMILIES = {
    name: f".{name}" for name in ("wan", "hunyuan_video", "framepack", "ltx_video", "cogvideox", "mochi", "hidream", "hunyuan_video_15")
}


def family_class(name: str) -> type[ModelFamily]:
    """The class of a family by name; raises UserError naming the closest known one."""
    if name not in FAMILIES:
        raise fail("model.family", f"'{name}' is unknown.", nearest(name, list(FAMILIES)))
    return import_module(FAMILIES[name], __package__).Family


def layouts() -> dict[str, FileLayout]:
    """The layouts of the families' single files, by family."""
    return {name: family_class(name).layout for name in FAMILIES}


def variant_names() -> list[str]:
    """The variants of all layouts, without loading a family."""
    return sorted({file.parent.name for file in Path(__file__).parent.glob("*/configs/*/transformer.json")})


def known_family(name: str) -> ModelFamily:
    """A family without any model's files, for names and layers; sizes are those of its main release."""
    return known_models(name)[0]


@cache
def known_models(name: str) -> tuple[ModelFamily, ...]:
    """The family's main release, then the variants whose configurations ship, all without files."""
    kind = family_class(name)
    shipped = {f"{name} {variant}": partial(kind.layout.config, variant) for variant in kind.layout.variants}
    return kind(NoFiles(name)), *(kind(NoFiles(variant, configs)) for variant, configs in shipped.items())


def known_variant(family: str, variant: str) -> ModelFamily:
    """A variant whose configurations ship, without files; raises UserError naming those that there are."""
    names = list(family_class(family).layout.variants)
    if variant not in names:
        found = f"'{variant}' is not one of its variants." if variant else "is a family of several models."
        raise fail(family, found, f"Name one, such as {family}/{names[-1]}: {', '.join(names)}.")
    return known_models(family)[1 + names.index(variant)]


def named_variant(source: str, folders: Sequence[Path] = ()) -> ModelFamily | None:
    """The variant that model.source names as family/variant, without files; None if it names no family, or a folder here or in `folders`.

    Raises UserError naming those that there are where it names another variant, or none.
    """
    name = source.strip()
    family, _, variant = name.partition("/")
    here = any(kind_of(folder / name) == "folder" for folder in (Path(), *folders))
    return known_variant(family, variant) if family in FAMILIES and not here else None


def open_model(model: Path | ModelSettings) -> ModelFamily:
    """The family object of a diffusers folder or of single files, its files checked by their headers alone.

    Settings name an existing folder, as `source.find_model` gives them. Raises UserError if no family recognises the
    model or its files cannot be used.
    """
    if isinstance(model, Path):
        return _checked(*_in_folder(model))
    if not model.transformer.strip():
        return _checked(*_in_folder(Path(model.source), model.family), model.sampling_order)
    with _usable_values(model.transformer):
        name, files = open_single_files(model, layouts())
    return _checked(family_class(name), files, model.sampling_order)


def _in_folder(folder: Path, family: str = "") -> tuple[type[ModelFamily], DiffusersFolder]:
    if not folder.is_dir():
        raise fail("model.source", f"'{folder}' is not a folder.", "Give a diffusers model folder or a hub id (owner/name).")
    if not (folder / "model_index.json").is_file():
        raise fail("model.source", f"'{folder}' holds no model_index.json.", "A diffusers folder has one beside transformer/, vae/, ….")
    candidates = [family_class(family)] if family else [family_class(name) for name in FAMILIES]
    files = DiffusersFolder(folder)
    for candidate in candidates:
        if candidate.recognises(files):
            return candidate, files
    raise fail("model.source", f"'{folder}' is not a model of a known family.", f"Families: {', '.join(FAMILIES)}.")


def _checked(kind: type[ModelFamily], files: ModelFiles, order: str = "auto") -> ModelFamily:
    with _usable_values(files.name):
        model = kind(files)
        model.check_files()
        require_sound(model)
    model.check_weights()
    model.choose_order(order)
    return model


@contextmanager
def _usable_values(where: str) -> Iterator[None]:
    """A configuration's value of another kind than the releases have becomes a UserError."""
    try:
        yield
    except UserError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        found = f"has a configuration that cannot be used ({type(error).__name__}: {error})."
        raise fail(where, found, "Download the model's configuration again.") from error
