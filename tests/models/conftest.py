"""ComfyUI's own model classes, for tests that compare ours with them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest

from tests.conftest import find_comfyui


@pytest.fixture(scope="session")
def core() -> Iterator[ModuleType]:
    """ComfyUI's package `comfy`, on the CPU; skips where there is none."""
    path = find_comfyui()
    if path is None:
        pytest.skip("no ComfyUI found: set COMFYUI_PATH")
    sys.path.insert(0, str(path))
    try:
        import_module("comfy.cli_args").args.cpu = True
        yield import_module("comfy")
    finally:
        sys.path.remove(str(path))
