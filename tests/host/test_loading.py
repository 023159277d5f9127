"""One broken node does not take the others along; needs no ComfyUI."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

import pytest


@pytest.fixture
def nodes(pack: ModuleType) -> ModuleType:
    return import_module(f"{pack.__name__}.nodes")


def test_a_broken_node_is_logged_and_the_others_load(
    nodes: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(nodes, "NODES", (("nowhere", "Lost"), ("prompt_lines", "parse_prompts")))
    assert [loaded.__name__ for loaded in nodes.load_nodes()] == ["parse_prompts"]
    assert "Lost is not available" in caplog.text and "Traceback" in caplog.text
    assert "pip install" not in caplog.text


def test_a_missing_package_is_named_with_its_cure(
    nodes: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(nodes, "NODES", (("train", "Train"),))
    for name in [name for name in sys.modules if name.startswith(f"{nodes.__name__}.train")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "comfy_api", None)  # as if it were not installed
    assert nodes.load_nodes() == []
    assert f'"{sys.executable}" -m pip install comfy_api' in caplog.text


def test_the_pack_imports_nothing_by_itself(pack: ModuleType) -> None:
    assert pack.WEB_DIRECTORY == "./web"
    assert not hasattr(pack, "NODE_CLASS_MAPPINGS")  # ComfyUI would then ignore comfy_entrypoint
