"""The example workflow of each family through /prompt, all branches, on small random files under the official names.

All that is changed in a workflow are steps and sizes. Core's loaders read the same files as training; where core fixes a
model's sizes it takes the file's, see small_core.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import pytest

from tests.host.comfy_server import Client, ComfyServer, errors
from tests.host.conftest import write_clips
from tests.host.family_files import EXAMPLES, Example, Size
from tests.host.workflow_prompt import prompt_of

pytestmark = [pytest.mark.host, pytest.mark.slow]

FEWER = {"steps": 2, "switch_every": 1, "start_at_step": 1, "end_at_step": 1}  # the second of two experts takes the second step
LENGTH = 24  # frames of a clip: enough for the longest size of the examples
PROBLEMS = re.compile(
    r"(lora key not loaded|NOT LOADED|unet missing|unet unexpected|left over keys|clip missing|Missing VAE keys|missing clip vision)(.*)"
)
# What core's classes have and no model uses, nor its released file has: a projection of CLIP, Qwen's eyes, times in a VAE.
UNUSED = re.compile(r"'(text_projection\.weight|visual\.[\w.]+|[\w.]+\.temb_proj\.\w+)'")


@pytest.fixture(scope="module")
def small(comfyui: Path, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComfyServer]:
    """A ComfyUI whose loaders take small files."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("families")
    (folder / "custom_nodes").mkdir()
    source = (root / "tests/host/small_core.py").read_text(encoding="utf-8")
    (folder / "custom_nodes/small_core.py").write_text(source, encoding="utf-8")
    running = ComfyServer(comfyui, root, folder)
    try:
        write_clips(folder / "input/my_clips", frames=LENGTH)
        (folder / "input/my_pictures").mkdir()
        for name in ("example", *(f"my_pictures/{number}" for number in range(2))):
            Image.effect_noise((64, 64), 80).convert("RGB").save(folder / f"input/{name}.png")
        running.wait_until_up()
        yield running
    finally:
        running.stop()


@pytest.fixture
def client(small: ComfyServer) -> Iterator[Client]:
    connected = small.client()
    yield connected
    connected.close()


def shortened(prompt: dict[str, Any], size: Size) -> dict[str, Any]:
    """The same graph with 2 steps at a small size, in training, its samples and all samplers."""
    frames, height, width = size
    small = {**FEWER, "frames": frames, "length": frames, "height": height, "width": width}
    for node in prompt.values():
        inputs = node["inputs"]
        if node["class_type"].endswith("FrameBuckets"):
            inputs["sizes"] = f"{frames}x{height}x{width}"
        if node["class_type"].endswith("SamplePrompts"):
            inputs["prompts"] = re.sub(r"\d+x\d+x\d+", f"{frames}x{height}x{width}", inputs["prompts"])
        inputs |= {name: value for name, value in small.items() if name in inputs and not _whole(name, inputs)}
    return prompt


def _whole(name: str, inputs: dict[str, Any]) -> bool:
    """Whether a sampler starts at the first step, or goes on to the last."""
    return (name, inputs[name]) in (("start_at_step", 0), ("end_at_step", 10000))


def saved(server: ComfyServer, history: dict[str, Any], node: str) -> Path:
    (file,) = history["outputs"][node]["images"]
    return server.folder / "output" / file["subfolder"] / file["filename"]


def size_of(file: Path) -> Size:
    """Frames, height and width of a video or a picture."""
    with av.open(file) as opened:
        frames = list(opened.decode(video=0))
    return len(frames), frames[0].height, frames[0].width


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_runs_in_all_branches(comfyui: Path, small: ComfyServer, client: Client, root: Path, tmp_path: Path, example: Example) -> None:
    if not (comfyui / "comfy" / example.tokenizer).exists():
        pytest.skip(f"this ComfyUI lacks comfy/{example.tokenizer}")
    workflow = json.loads((root / f"workflows/Video Trainer - {example.workflow}.json").read_text(encoding="utf-8"))
    prompt = shortened(prompt_of(workflow), example.size)
    chosen = next(node["inputs"] for node in prompt.values() if node["class_type"] == "VideoTrainerLoadModelFiles")
    example.put(chosen, small.folder / "models", tmp_path)
    train, own_only = next(key for key, node in prompt.items() if node["class_type"] == "VideoTrainerTrain"), example.lora_user
    if own_only:
        prompt["told"] = {"class_type": "PreviewAny", "inputs": {"source": [train, 1]}}
    before = len(small.log)
    history = client.run(prompt, limit=400)
    assert [error["exception_message"] for error in errors(history)] == []
    said = [(what, UNUSED.sub("", names).strip(" :[],")) for what, names in PROBLEMS.findall(small.log[before:])]
    assert [(what, names) for what, names in said if names] == []
    stopped = [message["data"]["exception_message"] for message in client.messages if message["type"] == "execution_error"]
    assert all(own_only in said for said in stopped) and len(stopped) == ("told" in prompt)

    name = prompt[train]["inputs"]["name"]
    experts = ("-high", "-low") if chosen["transformer_low"] != "none" else ("",)
    written = {file.name for file in (small.folder / "output/loras" / name).iterdir()}
    expected = {f"{name}{expert}-step-000002.safetensors" for expert in experts}
    assert {file for file in written if not file.endswith("-diffusers.safetensors")} == expected
    drawn = [saved(small, history, key) for key, node in prompt.items() if node["class_type"] in ("SaveVideo", "SaveImage")]
    assert len(drawn) == 1 + sum(node["class_type"] == "VAEDecode" for node in prompt.values())
    assert [size_of(file) for file in drawn] == [example.size] * len(drawn)
