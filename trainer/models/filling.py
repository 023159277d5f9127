"""Tensors of a file put into a model that was made without weights, quantised on their way where that is wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from ..memory.choices import Quantized, Weights
    from ..memory.frozen import FrozenWeight
    from .stored import StoredPart

M = TypeVar("M", bound="nn.Module")
Shape = tuple[int, ...]
Convert = Callable[[str, "Tensor"], "dict[str, Tensor]"]  # a file's tensor -> the model's tensors that it holds; raises KeyError


class Filler(Generic[M]):
    """Fills a model in `dtype`, but for what its class keeps in float32, one tensor of a file after the other.

    `weights` says what becomes of the linear layers that are not kept in float32. "as stored" freezes those that the file holds
    quantised, as they are; "unquantized" unpacks them; a form quantises those inside the model's blocks, from the file's own
    precision, unless they are stored in that form, and leaves others as they are stored.
    """

    def __init__(self, model: M, dtype: torch.dtype, weights: Weights) -> None:
        from ..memory.choices import quantized_form

        self._model, self._dtype, self._weights = model, dtype, weights
        self._shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        self._float32 = _float32_modules(model, dtype)
        self._form: Quantized | None = quantized_form(weights)
        self._inside = self._block_weights() if self._form else set[str]()

    def fill(self, part: StoredPart, name: str, ours: Mapping[str, Shape], convert: Convert) -> None:
        """Reads one tensor and gives the model's modules what it holds of theirs."""
        import torch

        if self.keeps(part, name, ours):
            self._keep(name, part.frozen(name), convert)
            return
        quantised, wanted = part.is_quantised(name), self._wanted(part, name, ours)
        precision = self._dtype_of(next(iter(ours))) if not wanted else torch.float32 if quantised else None
        parts = convert(name, part.read(name, precision))
        for own in ours:
            tensor = parts.pop(own).reshape(self._shapes[own])
            if wanted and own in self._inside:
                self._quantize(own, tensor)
            else:
                tensor = tensor.to(self._dtype_of(own)) if wanted else tensor
                self._set(own, tensor.clone() if len(ours) > 1 else tensor)

    def keeps(self, part: StoredPart, name: str, ours: Mapping[str, Shape]) -> bool:
        """Whether a file's tensor stays as it is stored; else it becomes the run's precision, or is quantised."""
        quantised, wanted = part.is_quantised(name), self._wanted(part, name, ours)
        return quantised and not wanted and self._weights != "unquantized" and all(map(self._is_linear, ours))

    def _wanted(self, part: StoredPart, name: str, ours: Mapping[str, Shape]) -> bool:
        """Whether it is to be quantised."""
        return bool(self._inside & ours.keys()) and not self._has_form(part, name)

    def filled(self) -> M:
        """The model in eval mode, which must have all its tensors, its tied ones tied."""
        if hasattr(self._model, "tie_weights"):
            cast("Any", self._model).tie_weights()
        assert not any(tensor.is_meta for tensor in (*self._model.parameters(), *self._model.buffers()))
        return self._model.eval()

    def _block_weights(self) -> set[str]:
        """The weights of the linear layers inside the model's blocks."""
        from ..memory.blocks import blocks_of

        blocks = blocks_of(self._model).items()
        found = (f"{block}.{name}.weight" for block, layers in blocks for name, _ in layers.named_modules() if name)
        return {name for name in found if self._is_linear(name)}

    def _has_form(self, part: StoredPart, name: str) -> bool:
        return self._form == "fp8" and part.is_quantised(name) and part.form(name) == "float8_e4m3fn"

    def _dtype_of(self, name: str) -> torch.dtype:
        import torch

        return torch.float32 if self._float32 & set(name.split(".")) else self._dtype

    def _is_linear(self, name: str) -> bool:
        """Whether a tensor is the weight of a linear layer that is not kept in float32."""
        from torch import nn

        module, _, own = name.rpartition(".")
        kept = self._dtype_of(name) != self._dtype
        return own == "weight" and not kept and type(self._model.get_submodule(module)) is nn.Linear

    def _keep(self, name: str, weight: FrozenWeight, convert: Convert) -> None:
        """Freezes layers as they are stored; what becomes of a weight's rows becomes of their scales."""
        from ..memory.frozen import FrozenWeight

        scales = convert(name, weight.scale) if weight.scale.dim() else {}
        data = convert(name, weight.data)
        for own in list(data):
            rows = data.pop(own)
            self._freeze(own, FrozenWeight(rows.clone() if scales or data else rows, scales.get(own, weight.scale).clone(), weight.form))

    def _quantize(self, name: str, weight: Tensor) -> None:
        from ..memory.quantize import quantized

        assert self._form
        self._freeze(name, quantized(weight, self._form))

    def _freeze(self, name: str, weight: FrozenWeight) -> None:
        """Puts a frozen layer in the place of a linear one."""
        from ..memory.frozen import FrozenLinear

        path = name.removesuffix(".weight")
        layer: Any = self._model.get_submodule(path)
        parent, _, place = path.rpartition(".")
        setattr(self._model.get_submodule(parent), place, FrozenLinear(weight, layer.in_features, layer.bias, self._dtype))

    def _set(self, name: str, tensor: Tensor) -> None:
        from torch import nn

        path, _, own = name.rpartition(".")
        module = self._model.get_submodule(path)
        if own in module._parameters:
            module._parameters[own] = nn.Parameter(tensor.contiguous(), requires_grad=False)
        else:
            module._buffers[own] = tensor.contiguous()


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
