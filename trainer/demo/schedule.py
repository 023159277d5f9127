"""Steps with a warm, falling learning rate and a time limit, and a moving average of weights."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


class Schedule:
    """Counts steps up to a number or a time limit in seconds, whichever comes first; the rate falls as a cosine."""

    def __init__(self, steps: int, rate: float, seconds: float = math.inf, warmup: int = 100) -> None:
        self.steps, self.rate, self.seconds, self.warmup = steps, rate, seconds, warmup
        self.step, self.start = 0, 0.0

    def __iter__(self) -> Iterator[int]:
        self.start = time.monotonic()
        while self.progress < 1:
            self.step += 1
            yield self.step
            if self.step == 1:  # compiling does not count
                self.start = time.monotonic()

    @property
    def progress(self) -> float:
        """Part of the work that is done, 0 to 1."""
        if self.step <= 1:
            return 0.0
        return max(self.step / self.steps, (time.monotonic() - self.start) / self.seconds)

    def apply(self, optimizer: Any) -> None:
        """Set the optimizer's rate for this step."""
        fall = 0.5 + 0.5 * math.cos(math.pi * min(self.progress, 1.0))
        for group in optimizer.param_groups:
            group["lr"] = self.rate * min(1.0, self.step / self.warmup) * max(fall, 0.01)

    def report(self, label: str, **figures: float) -> None:
        """Print one line of progress."""
        seconds = time.monotonic() - self.start
        text = " ".join(f"{name} {value:.4f}" for name, value in figures.items())
        print(f"{label} step {self.step} {seconds:.0f} s {1000 * seconds / self.step:.1f} ms/step {text}", flush=True)


class Average:
    """A moving average of a module's weights, kept in place with fused operations."""

    def __init__(self, module: Any, decay: float) -> None:
        self.decay, self.updates = decay, 0
        self.values: list[Tensor] = [value.detach().clone() for value in module.parameters()]

    def update(self, module: Any) -> None:
        """Move towards the module's weights; early updates move further."""
        import torch

        self.updates += 1
        weight = 1 - min(self.decay, self.updates / (self.updates + 10))
        torch._foreach_lerp_(self.values, [value.detach() for value in module.parameters()], weight)

    def copy_to(self, module: Any) -> None:
        """Overwrite the module's weights with the average."""
        for value, average in zip(module.parameters(), self.values, strict=True):
            value.data.copy_(average)


def train(
    label: str, module: Any, loss: Callable[..., Tensor], batch: Callable[[], Sequence[Tensor]], schedule: Schedule,
    optimizer: Any, average: Average, device: str,
) -> None:  # fmt: skip
    """Minimise `loss(*batch())` over the schedule's steps; ends with the average of the weights in `module`."""
    import torch

    backward = None
    for step in schedule:
        inputs = batch()
        backward = backward or _backward_pass(module, loss, inputs, device)
        value = backward(*inputs)
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        schedule.apply(optimizer)
        optimizer.step()
        average.update(module)
        if step % 100 == 0:
            schedule.report(label, loss=value.item())
    average.copy_to(module)


def _backward_pass(module: Any, loss: Callable[..., Tensor], example: Sequence[Tensor], device: str) -> Callable[..., Tensor]:
    """A function that fills the gradients of `loss(*inputs)` in bfloat16 and returns its value.

    On a GPU it is one recorded graph: a small model's kernels take longer to launch than to run.
    """
    import torch

    def plain(*inputs: Tensor) -> Tensor:
        module.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=device != "cpu", cache_enabled=False):
            value = loss(*inputs)
        value.backward()
        return value.detach()

    if device == "cpu":
        return plain
    places = [value.clone() for value in example]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            plain(*places)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = plain(*places)

    def replay(*inputs: Tensor) -> Tensor:
        for place, value in zip(places, inputs, strict=True):
            place.copy_(value)
        graph.replay()
        return result

    return replay
