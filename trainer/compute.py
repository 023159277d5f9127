"""Where and in which precision a run computes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from .errors import fail

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.amp.grad_scaler import GradScaler

    from .job import ComputeSettings

GIB = 2**30


class Compute:
    """The device and precision that a job's settings come to on this machine."""

    def __init__(self, settings: ComputeSettings) -> None:
        self.settings = settings
        self.device = _device(settings.device)
        self.dtype: torch.dtype = dtype_of(settings.dtype, self.device.type == "cuda" and _has_bf16(self.device))
        self.deterministic = settings.deterministic
        if self.deterministic and self.device.type == "cuda":
            _repeatable_products()

    def autocast(self) -> AbstractContextManager[object]:
        """Arithmetic in the run's precision; nothing to do in fp32."""
        import torch

        return nullcontext() if self.dtype == torch.float32 else torch.autocast(self.device.type, self.dtype)

    def keep_float32(self, module: nn.Module) -> None:
        """Takes the linear layers that a half-precision model keeps in float32 out of autocast."""
        import torch

        from .memory.frozen import weight_dtype

        if self.dtype == torch.float32:
            return
        for layer in module.modules():
            if isinstance(layer, torch.nn.Linear) and weight_dtype(layer) == torch.float32:
                layer.forward = torch.autocast(self.device.type, enabled=False)(layer.forward)

    def scaler(self) -> GradScaler:
        """A gradient scaler, at work only in fp16, whose range small gradients would leave."""
        import torch

        return torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)

    @contextmanager
    def repeatable(self) -> Iterator[None]:
        """Deterministic kernels on a GPU inside the block, if the job asks for it."""
        import torch

        if not self.deterministic:
            yield
            return
        from torch.nn.attention import SDPBackend, sdpa_kernel

        enabled, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        benchmark, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False
        torch.use_deterministic_algorithms(True)
        try:
            with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
                yield
        finally:
            torch.use_deterministic_algorithms(enabled, warn_only=warns)
            torch.backends.cudnn.benchmark = benchmark

    def reset_peak(self) -> None:
        """Starts a new measurement of peak device memory."""
        import torch

        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    def peak_gib(self) -> float:
        """Peak memory of the device in GiB since `reset_peak`; on a CPU this process's memory now."""
        import torch

        return torch.cuda.max_memory_allocated(self.device) / GIB if self.device.type == "cuda" else self.host_gib()

    def host_gib(self) -> float:
        """Memory of the host that this process has now, GiB."""
        import psutil

        return psutil.Process().memory_info().rss / GIB


def _repeatable_products() -> None:
    """Makes matrix products on a card repeatable; torch reads this setting once, at the first product of the process."""
    import torch

    if os.environ.get("CUBLAS_WORKSPACE_CONFIG") in (":4096:8", ":16:8"):
        return
    if torch.cuda.is_initialized():
        cure = "Start ComfyUI with --deterministic, or set CUBLAS_WORKSPACE_CONFIG=:4096:8 before it starts."
        raise fail("compute.deterministic", "must be known before the card is first used.", cure)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"


def _device(name: str) -> torch.device:
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise fail("compute.device", f"'{name}' is not a device.", "Use auto, cpu, cuda or cuda:N.") from None
    if device.type not in ("cpu", "cuda", "mps") or (device.type == "mps" and not torch.backends.mps.is_available()):
        raise fail("compute.device", f"'{name}' cannot be trained on.", "Use auto, cpu, cuda or cuda:N.")
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise fail("compute.device", f"'{name}' is not on this machine.", "Use auto or cpu, or install a PyTorch built for your card.")
    # with its number: not all of torch.cuda takes a device without one
    return torch.device("cuda", torch.cuda.current_device()) if device.type == "cuda" and device.index is None else device


def dtype_of(name: str, has_bf16: bool) -> torch.dtype:
    """What compute.dtype stands for on a card that has bf16, or on one or a CPU that has not."""
    import torch

    if name == "auto":
        return torch.bfloat16 if has_bf16 else torch.float32
    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]


def _has_bf16(device: torch.device) -> bool:
    """Whether the card computes bf16 itself; torch's own answer counts slow emulation too."""
    import torch

    return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= (8, 0)
