"""What OneTrainer trades for memory: checkpointing and offloading, of the whole run in older files, of each part in newer ones."""

from __future__ import annotations

from .memory_rules import layer_offload
from .result import Entry, Report
from .rules import is_off, plain

_OFFLOADED = "cpuoffloaded"


def add_memory(report: Report, entries: dict[str, Entry]) -> None:
    """How activations are kept and which layers lie in the host's memory: settings that hold together.

    In older files only the method CPU_OFFLOADED offloads, both activations and layers, unless activation offloading is off.
    """
    method = entries.get("transformer.gradient_checkpointing") or entries.get("gradient_checkpointing")
    activations = entries.get("transformer.activation_offloading") or entries.get("enable_activation_offloading")
    share = entries.get("transformer.offload_fraction") or entries.get("layer_offload_fraction")
    older = method is not None and method.key == "gradient_checkpointing"
    if older and method is not None and plain(method.value) != _OFFLOADED:
        for entry in filter(None, (activations, share)):
            report.ignored(entry, f"there it takes gradient_checkpointing at CPU_OFFLOADED; this is {method.value}")
        activations = share = None
    if method or activations:
        _checkpointing(report, method, activations)
    if share is not None and share.value is not None:
        layer_offload(report, share)


def _checkpointing(report: Report, method: Entry | None, activations: Entry | None) -> None:
    """The one setting of the job that both make."""
    wanted = activations is not None and not is_off(activations.value)
    if method is not None and plain(method.value) == _OFFLOADED:
        value = "offloaded" if wanted or activations is None else "full"
    elif wanted:
        value = "offloaded"
    elif method is None:
        assert activations is not None
        report.ignored(activations, "it is off")
        return
    else:
        value = "off" if is_off(method.value) else "full"
    report.put("memory.gradient_checkpointing", value)
    for entry in filter(None, (method, activations)):
        report.mapped(entry, "memory.gradient_checkpointing", value, "" if wanted or entry is method else "activations stay on the card")
