"""Whether the weights of a diffusers folder's part are all of the model that its configuration describes, and no more layers than that."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import UserError, fail
from .filling import Filler, Shape
from .loading import empty_model, written
from .stored import StoredPart
from .tensor_file import open_tensors, read_object

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ..memory.choices import Weights

M = TypeVar("M", bound="nn.Module")
CURE = "Download this part of the model again."
LIBRARY_FORMS = {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "I8": "int8", "U8": "nf4"}  # bitsandbytes packs 4 bits in U8
NUMBER = re.compile(r"\.\d+(?=\.)")


def require_fit(folder: Path, where: str, kind: type[nn.Module], config: Mapping[str, Any]) -> None:
    """Raises UserError if, by the headers, tensors are missing, of another shape, or of layers that the configuration does not have.

    Of diffusers' classes names and shapes are compared; those of transformers rename on load, so their loader is asked, without memory.
    """
    from diffusers import ModelMixin

    if "quantization_config" in config:  # its tensors are not the model's own before it is loaded
        return
    with _told(where):
        if not issubclass(kind, ModelMixin):
            with _quiet():
                model, info = _loaded(folder, kind, device_map="meta")
            _require_whole(where, model, info)
            return
        model = empty_model(kind, config)
        held = _renamed(model, _shapes(folder))
        wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        needed = dict(model.named_parameters())  # buffers are made by the class
        info = {
            "missing_keys": needed.keys() - held.keys(),
            "unexpected_keys": held.keys() - wanted.keys(),
            "mismatched_keys": [(name, held[name], wanted[name]) for name in needed if name in held and held[name] != wanted[name]],
        }
        _require_whole(where, model, info)


def load_strictly(folder: Path, where: str, kind: type[M], dtype: torch.dtype) -> M:
    """The part on the CPU; raises UserError for what `require_fit` does, as the class's own loader tells it."""
    model, info = _loaded(folder, kind, torch_dtype=dtype)
    _require_whole(where, model, info)
    return model


def load_quantized(
    folder: Path, where: str, kind: type[M], config: Mapping[str, Any], dtype: torch.dtype, weights: Weights, check: Callable[[], None]
) -> M:
    """A diffusers model on the CPU whose blocks are quantised as they are read; UserError as for `require_fit`, before that.

    Beside the model no more than its largest tensor is in memory. `check` is called between tensors.
    """
    if "quantization_config" in config:
        raise fail(where, f"is quantised already, so memory.weights cannot be {weights}.", "Set memory.weights to as stored.")
    require_fit(folder, where, kind, config)
    filler = Filler(model := empty_model(kind, config), dtype, weights)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    for file in _files(folder):
        part = StoredPart(open_tensors(file))
        for name in part.in_order():
            if name in shapes:
                check()
                filler.fill(part, name, {name: shapes[name]}, lambda own, tensor: {own: tensor})
    return filler.filled()


def quantised_weights(folder: Path) -> dict[str, tuple[str, int]]:
    """Weights of 8 bits and less that a library quantised: the form that is like theirs, and bytes with what lies beside them."""
    tensors = {name: stored for file in _files(folder) for name, stored in open_tensors(file).tensors.items()}
    return {
        name: (LIBRARY_FORMS[stored.dtype], sum(own.end - own.start for other, own in tensors.items() if other.startswith(name)))
        for name, stored in tensors.items()
        if name.endswith(".weight") and stored.dtype in LIBRARY_FORMS
    }


def _loaded(folder: Path, kind: type[M], **options: object) -> tuple[M, dict[str, Any]]:
    """A model and what its loader says of it."""
    model, info = kind.from_pretrained(  # type: ignore[attr-defined]
        folder, use_safetensors=True, output_loading_info=True, ignore_mismatched_sizes=True, **options
    )
    _tie(model, info["missing_keys"])
    return model, info


def _tie(model: nn.Module, missing: Collection[str]) -> None:
    """Gives tensors that the file lacks the ones that they are tied to.

    transformers 5.0 to 5.2 leave UMT5's embeddings random where the configuration does not tie those of input and output.
    """
    ties: Any = getattr(model, "_tied_weights_keys", None)
    if not isinstance(ties, dict):  # of transformers 4, which ties them itself
        return
    for name in missing:
        if name in ties and ties[name] not in missing:
            module, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(module), attribute, model.get_parameter(ties[name]))


@contextmanager
def _told(where: str) -> Iterator[None]:
    """Whatever the libraries raise on files that do not fit becomes a UserError."""
    try:
        yield
    except (UserError, MemoryError, ImportError):
        raise
    except Exception as error:
        raise fail(where, f"could not be loaded ({type(error).__name__}: {error}).", CURE) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' bars and reports, which come when the part is loaded in earnest."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _require_whole(where: str, model: nn.Module, info: Mapping[str, Any]) -> None:
    own, absent = dict(model.named_parameters(remove_duplicate=False)), set(info["missing_keys"])
    held = {id(tensor) for name, tensor in own.items() if name not in absent}
    # some releases of transformers count a tensor as missing that is tied to one they found
    if missing := sorted(name for name in absent if name not in own or id(own[name]) not in held):
        raise fail(where, f"lacks {len(missing)} of this model's tensors (such as '{missing[0]}').", CURE)
    for name, found, wanted in sorted(info["mismatched_keys"]):
        raise fail(where, f"has '{name}' of {written(found)}, and by its configuration it is {written(wanted)}.", CURE)
    if more := _further_layers(model.state_dict(), info["unexpected_keys"]):
        raise fail(where, f"has {len(more)} tensors of layers that its configuration does not have (such as '{more[0]}').", CURE)


def _further_layers(own: Iterable[str], strangers: Iterable[str]) -> list[str]:
    """Strange tensors that are called as the model's own but for a number; what other parts a file holds is left out on purpose."""
    alike = {NUMBER.sub(".*", name) for name in own if NUMBER.search(name)}
    return sorted(name for name in strangers if NUMBER.sub(".*", name) in alike)


def indexed_files(index: Path) -> list[str]:
    """The names of the files that an index of shards names; raises UserError if it is none."""
    places = read_object(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise fail(str(index), "is not an index of files.", "Download it again.")
    return sorted(set(places.values()))


def _shapes(folder: Path) -> dict[str, Shape]:
    """The shapes of all tensors of the part's files."""
    return {name: stored.shape for file in _files(folder) for name, stored in open_tensors(file).tensors.items()}


def _files(folder: Path) -> list[Path]:
    """The part's files of a diffusers model as its loader takes them: those that an index names, without one the whole file."""
    from diffusers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFETENSORS_WEIGHTS_NAME

    whole, index = folder / SAFETENSORS_WEIGHTS_NAME, folder / SAFE_WEIGHTS_INDEX_NAME
    if not whole.is_file() and not index.is_file():
        raise fail(str(folder), f"has neither {whole.name} nor {index.name}.", CURE)
    return [folder / name for name in indexed_files(index)] if index.is_file() else [whole]


def _renamed(model: nn.Module, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Under the names that the class's loader gives tensors of older releases."""
    import torch

    state = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    made: Any = model
    fixed = made._fix_state_dict_keys_on_load(state) or state if hasattr(made, "_fix_state_dict_keys_on_load") else state
    return {name: tuple(tensor.shape) for name, tensor in fixed.items()}
