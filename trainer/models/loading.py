"""A model made without weights and filled from a file, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..errors import fail
from .key_map import KeyMap
from .key_tensors import from_comfy
from .layout import Config
from .recognition import Match

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from ..memory.frozen import FrozenWeight
    from .stored import StoredPart

M = TypeVar("M", bound="nn.Module")
Shape = tuple[int, ...]
Convert = Callable[[str, "Tensor"], "dict[str, Tensor]"]  # a file's tensor -> the model's tensors that it holds; raises KeyError
STARTS = ("", "text_model.", "vision_model.", "model.", "language_model.", "model.language_model.", "encoder.")  # of names, here or there
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
    kind: type[M], config: Config, match: Match, dtype: torch.dtype, keep_quantized: bool, check: Callable[[], None], strict: bool
) -> M:
    """The model on the CPU in eval mode, in `dtype` but for what its class keeps in float32.

    Beside the model no more than its largest tensor is in memory. Raises UserError, before any tensor is read, if the
    file lacks tensors, has them in other shapes or, where `strict`, has some that the model does not.
    """
    model, places, convert = planned(kind, config, match, strict)
    filler = _Filler(model, dtype, keep_quantized)
    for name in match.part.in_order():
        if name in places:
            check()
            filler.fill(match.part, name, places[name], convert)
    if hasattr(model, "tie_weights"):
        cast("Any", model).tie_weights()
    assert not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    return model.eval()


def planned(kind: type[M], config: Config, match: Match, strict: bool) -> tuple[M, dict[str, dict[str, Shape]], Convert]:
    """The model without weights, which of its tensors each of the file's holds, and how they are got out; UserError as for `load_model`."""
    part = match.part
    try:
        model = empty_model(kind, config)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise fail(str(part.file.path), f"tells of a configuration that no model has ({type(error).__name__}: {error}).", CURE) from error
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    convert = _conversion(part, shapes, match.kind.keys(config) if match.kind.keys else None)
    places = _places(part, shapes, convert)
    _require_fit(part, {name: {} for name in match.kind.computed} | places, shapes, _tied(model), strict)
    return model, places, convert


class _Filler:
    """Puts a file's tensors into a model."""

    def __init__(self, model: nn.Module, dtype: torch.dtype, keep_quantized: bool) -> None:
        self._model, self._dtype, self._keep = model, dtype, keep_quantized
        self._shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        self._float32 = _float32_modules(model, dtype)

    def fill(self, part: StoredPart, name: str, ours: Mapping[str, Shape], convert: Convert) -> None:
        """Reads one tensor and gives the model's modules what it holds of theirs."""
        if self._keep and part.is_quantised(name) and all(map(self._is_linear, ours)):
            self._freeze(name, part.frozen(name), convert)
            return
        parts = convert(name, part.read(name, self._dtype_of(next(iter(ours)))))
        for own in ours:
            tensor = parts.pop(own).reshape(self._shapes[own])
            self._set(own, tensor.clone() if len(ours) > 1 else tensor)

    def _dtype_of(self, name: str) -> torch.dtype:
        import torch

        return torch.float32 if self._float32 & set(name.split(".")) else self._dtype

    def _is_linear(self, name: str) -> bool:
        """Whether a tensor is the weight of a linear layer that is not kept in float32."""
        from torch import nn

        module, _, own = name.rpartition(".")
        return own == "weight" and type(self._model.get_submodule(module)) is nn.Linear and self._dtype_of(name) == self._dtype

    def _freeze(self, name: str, weight: FrozenWeight, convert: Convert) -> None:
        """Puts frozen layers in the place of the linear ones; what becomes of a weight's rows becomes of their scales."""
        from ..memory.frozen import FrozenLinear, FrozenWeight

        scales = convert(name, weight.scale) if weight.scale.dim() else {}
        data = convert(name, weight.data)
        for own in list(data):
            path, rows = own.removesuffix(".weight"), data.pop(own)
            layer: Any = self._model.get_submodule(path)
            held = FrozenWeight(rows.clone() if scales or data else rows, scales.get(own, weight.scale).clone(), weight.form)
            parent, _, place = path.rpartition(".")
            setattr(self._model.get_submodule(parent), place, FrozenLinear(held, layer.in_features, layer.bias, self._dtype))

    def _set(self, name: str, tensor: Tensor) -> None:
        from torch import nn

        path, _, own = name.rpartition(".")
        module = self._model.get_submodule(path)
        if own in module._parameters:
            module._parameters[own] = nn.Parameter(tensor.contiguous(), requires_grad=False)
        else:
            module._buffers[own] = tensor.contiguous()


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


def _float32_modules(model: nn.Module, dtype: torch.dtype) -> set[str]:
    """Names that a model's class keeps in float32 in this precision, by diffusers' and transformers' own rules."""
    import torch
    from diffusers import ModelMixin

    rather = set[str](getattr(model, "_keep_in_fp32_modules", None) or ())
    always = set[str](getattr(model, "_keep_in_fp32_modules_strict", None) or ())
    if isinstance(model, ModelMixin):
        return rather
    if dtype == torch.float16:
        return always | rather
    return always if dtype == torch.bfloat16 else set[str]()
