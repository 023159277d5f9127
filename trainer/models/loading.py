"""A model made without weights and filled from a file, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import fail
from .filling import Convert, Filler, Shape
from .key_map import KeyMap
from .key_tensors import from_comfy
from .layout import Config
from .recognition import Match

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from ..memory.choices import Weights
    from .stored import StoredPart

M = TypeVar("M", bound="nn.Module")
STARTS = ("", "text_model.", "vision_model.", "model.", "language_model.", "model.language_model.", "encoder.")  # of names, here or there
UNFIT = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)  # what classes raise on configurations
CURE = "Choose another file of this model, or download it again."


def empty_model(kind: type[M], config: Config) -> M:
    """A diffusers or transformers class without weights, on the meta device."""
    from accelerate import init_empty_weights
    from diffusers import ModelMixin

    made: Any = kind
    with init_empty_weights():
        if issubclass(kind, ModelMixin):
            return made.from_config(dict(config))
        return made(made.config_class.from_dict(dict(config)))


def load_model(
    kind: type[M], config: Config, match: Match, dtype: torch.dtype, weights: Weights, check: Callable[[], None], strict: bool
) -> M:
    """The model on the CPU in eval mode, in `dtype` but for what its class keeps in float32 and what `Filler` quantises.

    Beside the model no more than its largest tensor is in memory. Raises UserError, before any tensor is read, if the
    file lacks tensors, has them in other shapes or, where `strict`, has some that the model does not.
    """
    model, places, convert = planned(kind, config, match, strict)
    filler = Filler(model, dtype, weights)
    for name in match.part.in_order():
        if name in places:
            check()
            filler.fill(match.part, name, places[name], convert)
    return filler.filled()


def planned(kind: type[M], config: Config, match: Match, strict: bool) -> tuple[M, dict[str, dict[str, Shape]], Convert]:
    """The model without weights, which of its tensors each of the file's holds, and how they are got out; UserError as for `load_model`."""
    part = match.part
    try:
        model = empty_model(kind, config)
    except UNFIT as error:
        raise fail(str(part.file.path), f"tells of a configuration that no model has ({type(error).__name__}: {error}).", CURE) from error
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    convert = _conversion(part, shapes, match.kind.keys(config) if match.kind.keys else None)
    places = _places(part, shapes, convert)
    _require_fit(part, {name: {} for name in match.kind.computed} | places, shapes, _tied(model), strict)
    return model, places, convert


def kept_quantised(kind: type[nn.Module], config: Config, match: Match, dtype: torch.dtype, strict: bool) -> dict[str, tuple[str, int]]:
    """What `load_model` leaves quantised with weights as stored: each weight's form and bytes, by its name in the model."""
    model, places, _ = planned(kind, config, match, strict)
    filler, part, found = Filler(model, dtype, "as stored"), match.part, dict[str, tuple[str, int]]()
    for name, ours in places.items():
        if filler.keeps(part, name, ours):
            whole = sum(map(prod, ours.values()))
            found |= {own: (part.form(name), part.size(name) * prod(shape) // whole) for own, shape in ours.items()}
    return found


def _conversion(part: StoredPart, shapes: Mapping[str, Shape], keys: KeyMap | None) -> Convert:
    """By the family's rules, or where names are the same but for what stands before them, by that."""
    if keys is not None:
        return lambda name, tensor: dict(from_comfy(keys, name, tensor, lambda own: shapes[own][0]))
    return partial(_renamed, *_starts(part.names, shapes))


def _renamed(ours: str, theirs: str, name: str, tensor: Tensor) -> dict[str, Tensor]:
    if not name.startswith(theirs):
        raise KeyError(name)
    return {ours + name.removeprefix(theirs): tensor}


def _starts(names: list[str], shapes: Mapping[str, Shape]) -> tuple[str, str]:
    """What stands before the model's names and before the file's, so that most of them meet."""

    def meeting(pair: tuple[str, str]) -> int:
        ours, theirs = pair
        return sum(ours + name.removeprefix(theirs) in shapes for name in names if name.startswith(theirs))

    return max(((ours, theirs) for ours in STARTS for theirs in STARTS), key=meeting)


def _places(part: StoredPart, shapes: Mapping[str, Shape], convert: Convert) -> dict[str, dict[str, Shape]]:
    """The model's tensors in each of the file's, and the shapes that they have there; those that are not the model's are left out."""
    import torch

    found = part.shapes
    places = {}
    for name in part.names:
        try:
            held = convert(name, torch.empty(found[name], device="meta"))
        except KeyError:
            continue
        except RuntimeError:  # rows that cannot be parted
            raise fail(str(part.file.path), f"'{name}' is {written(found[name])}, which does not fit this model.", CURE) from None
        if held.keys() <= shapes.keys():
            places[name] = {own: tuple(tensor.shape) for own, tensor in held.items()}
    return places


def _require_fit(
    part: StoredPart, places: Mapping[str, Mapping[str, Shape]], shapes: Mapping[str, Shape], tied: set[str], strict: bool
) -> None:
    where = str(part.file.path)
    held = {own: shape for place in places.values() for own, shape in place.items()}
    if missing := sorted(shapes.keys() - held.keys() - tied):
        raise fail(where, f"lacks {len(missing)} of this model's tensors (such as '{missing[0]}').", CURE)
    if strict and (strangers := [name for name in part.names if name not in places]):
        raise fail(where, f"has {len(strangers)} tensors that this model does not have (such as '{strangers[0]}').", CURE)
    for name, shape in held.items():
        if _plain(shape) != _plain(shapes[name]):
            raise fail(where, f"has '{name}' of {written(shape)}, and this model's is {written(shapes[name])}.", CURE)


def _plain(shape: Shape) -> Shape:
    """A shape without its sides of one: some files keep a linear layer as a convolution of one pixel."""
    return tuple(size for size in shape if size != 1)


def written(shape: Iterable[int]) -> str:
    """A shape as users read it."""
    return "x".join(map(str, shape)) or "a number"


def _tied(model: nn.Module) -> set[str]:
    """Names that share another's tensor, so that a file need not hold them."""
    return set(getattr(model, "_tied_weights_keys", None) or ())
