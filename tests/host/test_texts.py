"""Text inputs of all nodes, given through ComfyUI's API as something else, or linked to what gives no text."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.host.comfy_server import Client, ComfyServer, errors
from tests.host.conftest import FRAMES, SIZE, training_graph

pytestmark = pytest.mark.host

PYTHON = re.compile(r"has no attribute|argument must be|expected string|object is not|Error:")
NO_TEXTS = (5, [1, 2, 3], [], {"a": 1}, {"__value__": [1, 2]}, {"__value__": 5})
GIVEN = {  # beside the defaults, so that nothing else is wrong
    "VideoTrainerVideoFolder": {"folder": "clips"},
    "VideoTrainerLoadModelFiles": {"transformer": "tiny.safetensors", "vae": "tiny.safetensors"},
    "VideoTrainerFrameBuckets": {"sizes": f"{FRAMES}x{SIZE}x{SIZE}"},
}
LINKS = {"VIDEO_TRAINER_MODEL": "model", "VIDEO_TRAINER_DATASET": "buckets"}


def graph_of(about: dict[str, Any], node: str, name: str, value: Any) -> dict[str, Any]:
    """A graph that shows what the node gives, with a value in one of its inputs."""
    graph = {key: training_graph("texts", 1)[key] for key in ("model", "clips", "buckets")}
    given: dict[str, Any] = {}
    for own, (type, options) in about["input"]["required"].items():
        given[own] = [LINKS[type], 0] if type in LINKS else options.get("default", "")
    graph["node"] = {"class_type": node, "inputs": {**given, **GIVEN.get(node, {}), name: value}}
    graph["shown"] = {"class_type": "PreviewAny", "inputs": {"source": ["node", 0]}}
    return graph


def test_something_else_than_a_text_is_told_of_its_input(server: ComfyServer) -> None:
    """It gave errors of Python's, such as 'list' object has no attribute 'strip', in whatever node checks its own texts."""
    told = 0
    ours = {node: about for node, about in server.get("/object_info")[1].items() if node.startswith("VideoTrainer")}
    for node, about in ours.items():
        inputs = {**about["input"].get("required", {}), **about["input"].get("optional", {})}
        texts = [(name, type, value) for name, (type, _) in inputs.items() for value in NO_TEXTS if type in ("STRING", "COMBO")]
        for name, type, value in texts:
            if name == "layer_offload_fraction" or (type == "STRING" and not isinstance(value, list)):
                continue  # a number, and what ComfyUI itself makes a text of
            status, answer = server.post("/prompt", {"prompt": graph_of(about, node, name, value)})
            assert status == 400 and not PYTHON.search(str(answer)), (node, name, value, answer)
            assert any(re.search(rf"\b{name}\b.*", str(error)) for error in answer["node_errors"]["node"]["errors"]), (node, name, answer)
            told += 1
    assert told > 100


@pytest.mark.parametrize(
    ("node", "name"), [("LoadModel", "source"), ("LoadModelFiles", "transformer"), ("LoadModelFiles", "text_encoder_2")]
)
def test_nothing_at_all_is_told_when_the_node_runs(server: ComfyServer, client: Client, node: str, name: str) -> None:
    """ComfyUI gives the same for what is linked, so that it cannot be told before."""
    about = server.get("/object_info")[1][f"VideoTrainer{node}"]
    (error,) = errors(client.run(graph_of(about, f"VideoTrainer{node}", name, None)))
    assert error["exception_message"].strip() == f"{name}: None is no text. Give a text, or link a node that gives one."


@pytest.mark.parametrize(
    ("node", "name"),
    [
        ("VideoTrainerLoadModel", "path"), ("VideoTrainerSaveParquet", "folder"), ("VideoTrainerImportConfig", "files"),
        ("VideoTrainerSamplePrompts", "prompts"), ("VideoTrainerEncodePrompt", "text"), ("VideoTrainerCaptionClips", "captions"),
    ],
)  # fmt: skip
def test_a_link_of_any_type_that_gives_no_text(server: ComfyServer, client: Client, node: str, name: str) -> None:
    graph = graph_of(server.get("/object_info")[1][node], node, name, ["odd", 0])
    graph["odd"] = {"class_type": "TestAnything", "inputs": {}}
    (error,) = errors(client.run(graph))
    assert error["exception_type"].endswith("UserError")
    assert error["exception_message"].strip() == f"{name}: 7 is no text. Give a text, or link a node that gives one."
