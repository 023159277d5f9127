"""What the tests find on this machine, and which of them it cannot run."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
IMPORTS = 50  # new modules that are worth it


def find_comfyui() -> Path | None:
    """The ComfyUI for the host and browser tests: COMFYUI_PATH, ~/comfy/ComfyUI, or the one this pack lies in."""
    for folder in (os.environ.get("COMFYUI_PATH"), Path.home() / "comfy" / "ComfyUI", ROOT.parents[1]):
        if folder and (Path(folder) / "main.py").is_file() and (Path(folder) / "comfy").is_dir():
            return Path(folder)
    return None


def find_chromium() -> Path | None:
    found = os.environ.get("CHROMIUM_PATH") or next(filter(None, map(shutil.which, CHROMIUMS)), None)
    return Path(found) if found else None


def lacking(marker: str) -> str:
    """Why tests of this marker cannot run here; empty when they can."""
    if marker in ("host", "browser") and find_comfyui() is None:
        return "no ComfyUI here: set COMFYUI_PATH to its folder"
    if marker in ("host", "browser") and importlib.util.find_spec("comfyui_frontend_package") is None:
        return "ComfyUI's requirements are not installed beside the tests: run `make test`"
    if marker == "browser" and find_chromium() is None:
        return "no Chromium here: install it, or set CHROMIUM_PATH"
    return ""


def pytest_report_header() -> list[str]:
    return [f"ComfyUI: {find_comfyui() or 'none'}; Chromium: {find_chromium() or 'none'}"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reasons: dict[str, str] = {}
    for item in items:
        for marker in ("host", "browser"):
            if item.get_closest_marker(marker) is None:
                continue
            if marker not in reasons:
                reasons[marker] = lacking(marker)
            if reasons[marker]:
                item.add_marker(pytest.mark.skip(reason=reasons[marker]))


imported = 0  # modules, when garbage collection was last told to leave out what is there


def pytest_runtest_setup() -> None:
    """A run collects garbage several times, which takes longer the more is imported: what is there before a test stays out of it."""
    global imported
    if len(sys.modules) > imported + IMPORTS:
        gc.collect()
        gc.freeze()
        imported = len(sys.modules)


@pytest.fixture(scope="session")
def root() -> Path:
    """The pack's folder."""
    return ROOT


@pytest.fixture(scope="session")
def comfyui() -> Path:
    """The folder of a real ComfyUI; only for tests marked host or browser, which are skipped without one."""
    found = find_comfyui()
    assert found is not None
    return found


@pytest.fixture(scope="session")
def chromium() -> Path:
    """The browser's executable; only for tests marked browser."""
    found = find_chromium()
    assert found is not None
    return found


@pytest.fixture(scope="session")
def pack() -> ModuleType:
    """The pack imported as a package, as ComfyUI does it: `nodes` is then `pack.__name__ + ".nodes"`."""
    spec = importlib.util.spec_from_file_location("video_trainer_pack", ROOT / "__init__.py", submodule_search_locations=[str(ROOT)])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
