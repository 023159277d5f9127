"""Versions of job files: how those of older releases are brought up to date."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .errors import fail

JOB_VERSION = 3


def upgraded(data: dict[str, Any]) -> dict[str, Any]:
    """A job of any known version as one of this version; one without a version may be of the first.

    Raises UserError for a version that is not known here.
    """
    version = data.get("version", 1)
    if version not in (*_UPGRADES, JOB_VERSION):
        raise fail("version", f"{version!r} is not known here.", f"This version reads up to {JOB_VERSION}; update Video Trainer.")
    while version != JOB_VERSION:
        data = _UPGRADES[version](data)
        version += 1
    return {**data, "version": JOB_VERSION}


def _from_1(data: dict[str, Any]) -> dict[str, Any]:
    """Version 1 knew folders only: `dataset.folders`."""
    dataset = data.get("dataset")
    if not isinstance(dataset, dict) or not isinstance(dataset.get("folders"), list) or "sources" in dataset:
        return data
    sources = [{"kind": "folder", **folder} if isinstance(folder, dict) else folder for folder in dataset["folders"]]
    rest = {name: value for name, value in dataset.items() if name != "folders"}
    return {**data, "dataset": {**rest, "sources": sources}}


def _from_2(data: dict[str, Any]) -> dict[str, Any]:
    """Version 2 had switches where there are choices now: `memory.gradient_checkpointing` and `memory.keep_quantized`.

    It took all negative values of `memory.layer_offload_fraction` for -1; a job that does not say that it is of that version means
    what it says. Raises UserError for the latter if it is no switch, as this version has no setting of its name that could refuse it.
    """
    memory = data.get("memory")
    if not isinstance(memory, dict):
        return data
    memory = dict(memory)
    if isinstance(on := memory.get("gradient_checkpointing"), bool):
        memory["gradient_checkpointing"] = "auto" if on else "off"
    if "version" in data and _is_negative_share(memory.get("layer_offload_fraction")):
        memory["layer_offload_fraction"] = -1.0
    if "keep_quantized" in memory:
        keep = memory.pop("keep_quantized")
        if not isinstance(keep, bool):
            cure = "Give true or false; or set version to 3 and give memory.weights in its place."
            raise fail("memory.keep_quantized", f"{keep!r} is not accepted: in a job of version 2 it is a switch.", cure)
        memory.setdefault("weights", "auto" if keep else "unquantized")
    return {**data, "memory": memory}


def _is_negative_share(value: Any) -> bool:
    try:
        return -1 < float(value) < 0
    except (TypeError, ValueError, OverflowError):
        return False


_UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _from_1, 2: _from_2}
