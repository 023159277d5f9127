"""Convert LoRA: where it writes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.host.comfy_server import Client, ComfyServer, errors


def converting(server: ComfyServer, name: Any) -> dict[str, Any]:
    folder = server.folder / "models/loras"
    folder.mkdir(parents=True, exist_ok=True)
    save_file({"some.weight": torch.ones(2)}, folder / "some.safetensors")
    inputs = {"lora": "some.safetensors", "to": "comfyui", "name": name}
    return {"convert": {"class_type": "VideoTrainerConvertLoRA", "inputs": inputs}}


@pytest.mark.parametrize("name", ["../../../escaped", "folder/escaped", "/tmp/escaped", "a\0b", "."])
def test_nothing_is_written_outside_its_folder(server: ComfyServer, client: Client, name: str) -> None:
    """A linked name is not known before the node runs: it was then taken as it is."""
    status, answer = server.post("/prompt", {"prompt": converting(server, name)})
    assert status == 400 and "a name cannot" in str(answer["node_errors"]["convert"]["errors"])
    linked = {**converting(server, ["text", 0]), "text": {"class_type": "PrimitiveString", "inputs": {"value": name}}}
    (error,) = errors(client.run(linked))
    assert "a name cannot" in error["exception_message"]
    assert not list(server.folder.parent.rglob("*escaped*"))
