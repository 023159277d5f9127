"""The kernel of attention, one for a whole run: what is computed again in the backward pass must be what was computed first."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..errors import UserError, fail
from ..packages import require

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from ..compute import Compute

HOPPER = 9  # major compute capability, the only one that flash-attn 3 runs on
PREFER_CUDNN = (9, 10)  # major compute capabilities whose tensor cores cuDNN's attention uses and PyTorch's own flash does not
PACKAGES = {"flash-attn 2": "flash_attn", "flash-attn 3": "flash_attn_interface", "sage": "sageattention"}  # module by kernel
THROUGH_DIFFUSERS = {"flash-attn 2": "flash", "sage": "sage"}  # diffusers' name by kernel
FLASH_3 = "FA3"  # PyTorch's name of flash-attn 3


class Attention:
    """The kernels of a transformer's attention on this machine in training and in sampling.

    Raises UserError if the settings name one that cannot be used here.
    """

    def __init__(self, compute: Compute, transformer: nn.Module) -> None:
        self._compute = compute
        self.training_kernel, self.sampling_kernel = kernels_of(compute)
        for setting, kernel in (("attention", self.training_kernel), ("sampling_attention", self.sampling_kernel)):
            if kernel in THROUGH_DIFFUSERS and not _dispatches(transformer):
                found = f"{kernel} cannot be used with this model, which calls PyTorch's attention directly."
                raise fail(f"compute.{setting}", found, "Use auto." if setting == "attention" else "Use 'as in training'.")

    def training(self) -> AbstractContextManager[object]:
        """Pins the kernel of training; raises UserError if another program replaced PyTorch's attention."""
        require_original()
        return self._pinned(self.training_kernel)

    def sampling(self) -> AbstractContextManager[object]:
        """Pins the kernel of sample videos."""
        return self._pinned(self.sampling_kernel)

    def _pinned(self, kernel: str) -> AbstractContextManager[object]:
        compute = self._compute
        if (kernel == "auto" and compute.device.type != "cuda") or (compute.deterministic and kernel in ("auto", "flash")):
            return nullcontext()  # on a CPU PyTorch chooses, and `Compute.repeatable` pins flash and math
        if kernel in THROUGH_DIFFUSERS:
            return _through_diffusers(kernel, _torch_kernels("auto", compute.device))
        if kernel == "flash-attn 3":
            return _as_flash_3(_torch_kernels("flash", compute.device))
        return _torch_kernels(kernel, compute.device)


def kernels_of(compute: Compute) -> tuple[str, str]:
    """The kernels of training and of sampling, as the settings say; auto is settled if flash-attn 3 is there for it.

    Raises UserError for what this card or precision cannot do, and for packages that are missing.
    """
    chosen = compute.settings.attention
    if chosen == "auto" and not compute.deterministic and _has_flash_3(compute):
        chosen = "flash-attn 3"
    _require_usable("compute.attention", chosen, compute)
    if compute.deterministic and chosen not in ("auto", "flash", "math"):
        cure = "Use auto, flash or math, or set compute.deterministic to false."
        raise fail("compute.attention", f"{chosen} is not repeatable to the bit.", cure)
    if compute.settings.sampling_attention != "sage":
        return chosen, chosen
    _require_usable("compute.sampling_attention", "sage", compute)
    return chosen, "sage"


def order(kernel: str, capability: tuple[int, int]) -> list[str]:
    """PyTorch's kernels in the order in which they are tried; math, which takes anything, is last.

    Flash takes no mask, and both flash and cuDNN's need half precision, so that efficient or math does the rest. cuDNN's is
    the faster of the two on Hopper and later data-centre cards; on others flash is as fast, and need not be built for each new size.
    """
    if kernel == "math":
        return ["math"]
    best = ["cudnn", "flash"] if capability[0] in PREFER_CUDNN else ["flash", "cudnn"]
    return list(dict.fromkeys([*(best if kernel == "auto" else [kernel]), "efficient", "math"]))


def require_original() -> None:
    """Raises UserError if PyTorch's attention was replaced, naming who did it: a replacement may have no gradient, or a wrong one."""
    import torch

    function: Any = torch.nn.functional.scaled_dot_product_attention
    if inspect.isbuiltin(function) and str(function.__module__).startswith("torch."):
        return
    raise fail(
        "compute.attention",
        f"PyTorch's attention (torch.nn.functional.scaled_dot_product_attention) was replaced by {_origin(function)}.",
        "Training through it may go wrong unseen: switch that off or remove it, and start ComfyUI again.",
    )


def _origin(function: Any) -> str:
    """Where a function was written: its module and, if it is Python's, its file; a wrapper may bear the name of what it wraps."""
    inner = getattr(function, "func", function)  # of a partial
    inner = inner if hasattr(inner, "__code__") else getattr(type(inner), "__call__", inner)  # noqa: B004 - of an object that is called
    code = getattr(inner, "__code__", None)
    return f"{inner.__globals__.get('__name__')} ({code.co_filename})" if code else str(type(function).__module__)


def _require_usable(where: str, kernel: str, compute: Compute) -> None:
    device = compute.device
    if kernel in PACKAGES or kernel in ("cudnn", "efficient"):
        if device.type != "cuda":
            raise fail(where, f"{kernel} runs on a GPU only.", "Use the default.")
        if kernel == "flash-attn 3" and _capability(device)[0] != HOPPER:
            raise fail(where, "flash-attn 3 runs on Hopper cards (H100, H200) only.", "Use auto or flash-attn 2.")
    if kernel in PACKAGES:
        require(PACKAGES[kernel])
        if compute.dtype.itemsize != 2:
            raise fail(where, f"{kernel} computes in bf16 and fp16 only.", "Use the default, or set compute.dtype to bf16.")
    if kernel == "flash-attn 3" and not _torch_knows_flash_3():
        raise fail(where, "this PyTorch does not know flash-attn 3.", "Use auto, or a newer PyTorch.")


def _has_flash_3(compute: Compute) -> bool:
    try:
        _require_usable("compute.attention", "flash-attn 3", compute)
    except UserError:
        return False
    return True


def _torch_knows_flash_3() -> bool:
    from torch.nn import attention

    return hasattr(attention, "list_flash_attention_impls") and FLASH_3 in attention.list_flash_attention_impls()


def _capability(device: torch.device) -> tuple[int, int]:
    """The card's compute capability; (0, 0) of other devices and of AMD's cards."""
    import torch

    return torch.cuda.get_device_capability(device) if device.type == "cuda" and torch.version.hip is None else (0, 0)


def _dispatches(transformer: nn.Module) -> bool:
    """Whether the transformer's attention goes through diffusers' choice of kernels (`dispatch_attention_fn`)."""
    return any(hasattr(getattr(module, "processor", None), "_attention_backend") for module in transformer.modules())


def _torch_kernels(kernel: str, device: torch.device) -> AbstractContextManager[object]:
    """PyTorch's kernels, tried in one order at every call: which of them can take it depends on its tensors' forms alone."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    names = {
        "cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "math": SDPBackend.MATH,
    }  # fmt: skip
    return sdpa_kernel([names[name] for name in order(kernel, _capability(device))], set_priority=True)


@contextmanager
def _as_flash_3(kernels: AbstractContextManager[object]) -> Iterator[None]:
    """Makes flash-attn 3 PyTorch's flash kernel, with its gradient and for every model: diffusers' own way to it has no gradient."""
    from torch.nn import attention

    nested = attention.current_flash_attention_impl() == FLASH_3
    if not nested:
        attention.activate_flash_attention_impl(FLASH_3)
    try:
        with kernels:
            yield
    finally:
        if not nested:
            attention.restore_flash_attention_impl()


@contextmanager
def _through_diffusers(kernel: str, others: AbstractContextManager[object]) -> Iterator[None]:
    """Makes a package's kernel the one that diffusers' attention uses; `others` pins PyTorch's for what that cannot take."""
    from diffusers.models import attention_dispatch

    registry: Any = attention_dispatch._AttentionBackendRegistry
    name = attention_dispatch.AttentionBackendName(THROUGH_DIFFUSERS[kernel])
    before, active = registry._backends[name], registry._active_backend
    registry._backends[name] = _package_attention(kernel)
    registry.set_active_backend(name)
    try:
        with others:
            yield
    finally:
        registry._backends[name] = before
        registry.set_active_backend(active)


@lru_cache  # one function for the whole process, or torch.compile would take each for a new one
def _package_attention(kernel: str) -> Callable[..., Tensor]:
    """A package's attention for diffusers' dispatcher: query, key, value [B, N, heads, D]; with a mask or in float32 it is PyTorch's."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    compute = _flash_2() if kernel == "flash-attn 2" else _sage()

    def attention(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, scale: float | None = None, **_: object
    ) -> Tensor:
        kind = query.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else query.dtype
        if attn_mask is None and dtype.itemsize == 2:
            return compute(query.to(dtype), key.to(dtype), value.to(dtype), scale)
        query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
        return scaled_dot_product_attention(query, key, value, attn_mask=attn_mask, scale=scale).transpose(1, 2)

    return attention


def _flash_2() -> Callable[[Tensor, Tensor, Tensor, float | None], Tensor]:
    function = importlib.import_module("flash_attn").flash_attn_func
    return lambda query, key, value, scale: function(query, key, value, softmax_scale=scale)


def _sage() -> Callable[[Tensor, Tensor, Tensor, float | None], Tensor]:
    function = importlib.import_module("sageattention").sageattn
    return lambda query, key, value, scale: function(query, key, value, tensor_layout="NHD", is_causal=False, sm_scale=scale)
