"""A model of two experts that starts from a picture, in a real ComfyUI: two LoRAs, and first frames from IMAGE sockets."""

from __future__ import annotations

import pytest

from tests.host.comfy_server import Client, ComfyServer, errors
from tests.host.conftest import training_graph
from tests.tiny.wan import write_tiny_a14b_i2v

pytestmark = [pytest.mark.host, pytest.mark.slow]


def test_two_loras_and_samples_from_a_picture(server: ComfyServer, client: Client) -> None:
    write_tiny_a14b_i2v(server.folder / "models/diffusers/two")
    graph = training_graph("two", steps=2, switch_every=1)
    graph["model"]["inputs"] |= {"source": "two", "expert": "all"}
    graph["picture"] = {"class_type": "EmptyImage", "inputs": {"width": 40, "height": 32, "batch_size": 1, "color": 255}}
    graph["samples"]["inputs"]["image"] = ["picture", 0]
    for name, output in (("high", 1), ("low", 5)):
        graph[f"save_{name}"] = {"class_type": "SaveLoRA", "inputs": {"lora": ["train", output], "prefix": f"loras/resaved_{name}"}}
    size = {"frames": 5, "height": 32, "width": 32, "steps": 2}
    graph["draw"] = {
        "class_type": "VideoTrainerSampleVideo",
        "inputs": {"model": ["model", 0], "lora": ["train", 0], "prompt": "a pattern", "first_frame": ["picture", 0], **size},
    }
    graph["save"] = {
        "class_type": "SaveVideo",
        "inputs": {"video": ["draw", 0], "filename_prefix": "drawn_from_a_picture", "format": "auto", "codec": "auto"},
    }
    history = client.run(graph)
    assert errors(history) == [] and history["outputs"]["save"]["images"]
    loras = server.folder / "output/loras"
    assert {file.name for file in (loras / "two").iterdir()} == {f"two-{name}-step-000002.safetensors" for name in ("high", "low")}
    assert list(loras.glob("resaved_high*")) and list(loras.glob("resaved_low*"))


def test_a_model_without_a_picture_to_start_from_says_so(server: ComfyServer, client: Client) -> None:
    write_tiny_a14b_i2v(server.folder / "models/diffusers/picture")
    graph = training_graph("picture", steps=1)
    graph["model"]["inputs"]["source"] = "picture"
    failed = errors(client.run(graph))
    assert [error["node_id"] for error in failed] == ["train"] and "first_frame" in failed[0]["exception_message"]
