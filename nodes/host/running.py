"""A node's work in the running graph: its device, the card to itself, Cancel, and what other nodes take of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import comfy.model_management
from server import PromptServer

from ...trainer.errors import Interrupted
from ...trainer.job import ComputeSettings
from .listener import NodeListener, RunListener

_active: RunListener | None = None


def linked_outputs(node: str) -> tuple[int, ...]:
    """Which outputs of `node` other nodes of the running prompt take."""
    running, _ = PromptServer.instance.prompt_queue.get_current_queue_volatile()
    links = [value for item in running for other in item[2].values() for value in other.get("inputs", {}).values()]
    return tuple(sorted({link[1] for link in links if isinstance(link, list) and len(link) == 2 and str(link[0]) == str(node)}))


def workflow_of(prompt: str) -> str | None:
    """The id of the canvas graph that a prompt was queued from; None if it came without one, or is not known."""
    queue = PromptServer.instance.prompt_queue
    running, waiting = queue.get_current_queue_volatile()
    found = [item for item in (*running, *waiting) if item[1] == prompt]
    found = found or list(queue.get_history(prompt, map_function=lambda entry: entry["prompt"]).values())
    extra = found[0][3].get("extra_pnginfo") if found else None
    return ((extra or {}).get("workflow") or {}).get("id")


def compute_settings(settings: ComputeSettings | None = None) -> ComputeSettings:
    """The settings with device "auto" replaced by the device that ComfyUI was started for."""
    settings = settings or ComputeSettings()
    device = comfy.model_management.get_torch_device()
    ours = settings.device == "auto" and device.type in ("cpu", "cuda")
    return settings.model_copy(update={"device": str(device)}) if ours else settings


def active_run() -> RunListener | None:
    """The listener of the run that is training now."""
    return _active


@contextmanager
def computing(listener: NodeListener) -> Iterator[None]:
    """The card to ourselves, outside inference mode; a training run inside is the active one and has autograd on.

    A cancel inside becomes ComfyUI's interrupt.
    """
    import torch

    global _active
    comfy.model_management.unload_all_models()
    comfy.model_management.soft_empty_cache()
    _active = listener if isinstance(listener, RunListener) else None
    try:
        with cancelling(), torch.inference_mode(False), torch.set_grad_enabled(_active is not None):
            yield
    finally:
        _active = None
        comfy.model_management.soft_empty_cache()


@contextmanager
def cancelling() -> Iterator[None]:
    """A cancel inside becomes ComfyUI's interrupt."""
    try:
        yield
    except Interrupted:
        comfy.model_management.throw_exception_if_processing_interrupted()
        raise comfy.model_management.InterruptProcessingException() from None
