"""One ComfyUI for all host tests, and a small model and clips for it to train on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.host.comfy_server import Client, ComfyServer
from tests.tiny.wan import write_tiny_wan
from trainer.models import open_model

CLIPS, FRAMES, SIZE = 3, 9, 32
# A pack that answers with the names of the modules loaded in the server, so that tests can see what we imported.
PROBE = """
import sys
from aiohttp import web
from server import PromptServer

@PromptServer.instance.routes.get("/test_probe/modules")
async def modules(_):
    return web.json_response(sorted(sys.modules))

NODE_CLASS_MAPPINGS = {}
"""
# A CLIP and a captioner as small as they can be. The CLIP says how many pictures it sees, or asks for a cancel as it speaks.
CAPTIONERS = """
import comfy.model_management

class Clip:
    def __init__(self, says, cancels):
        self.says, self.cancels = says, cancels

    def tokenize(self, text, image, **options):
        return {"fake": [[({"type": "image"}, 1.0) for _ in image]]}

    def generate(self, tokens, **options):
        if self.cancels:
            comfy.model_management.interrupt_current_processing()
        return [len(tokens["fake"][0])]

    def decode(self, ids):
        return f"{self.says} {ids[0]}"

class TestClip:
    INPUT_TYPES = classmethod(lambda cls: {"required": {"says": ("STRING", {}), "cancels": ("BOOLEAN", {"default": False})}})
    RETURN_TYPES, FUNCTION, CATEGORY = ("CLIP",), "make", "test"

    def make(self, says, cancels):
        return (Clip(says, cancels),)

class TestCaptioner:
    INPUT_TYPES = classmethod(lambda cls: {"required": {"image": ("IMAGE",)}})
    RETURN_TYPES, FUNCTION, CATEGORY = ("STRING",), "make", "test"

    def make(self, image):
        return (f"an image of {image.shape[2]} x {image.shape[1]}",)

class TestAnything:
    INPUT_TYPES = classmethod(lambda cls: {"required": {}})
    RETURN_TYPES, FUNCTION, CATEGORY = ("*",), "make", "test"

    def make(self):
        return (7,)

NODE_CLASS_MAPPINGS = {"TestClip": TestClip, "TestCaptioner": TestCaptioner, "TestAnything": TestAnything}
"""


@pytest.fixture(scope="session")
def server(comfyui: Path, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComfyServer]:
    folder = tmp_path_factory.mktemp("comfyui")
    (folder / "custom_nodes").mkdir()
    (folder / "custom_nodes" / "test_probe.py").write_text(PROBE, encoding="utf-8")
    (folder / "custom_nodes" / "test_captioners.py").write_text(CAPTIONERS, encoding="utf-8")
    tiny = write_tiny_wan(folder / "models/diffusers/tiny")
    open_model(tiny).write_comfy_files(folder / "models/diffusion_models/tiny.safetensors", folder / "models/vae/tiny.safetensors")
    write_clips(folder / "input/clips")
    running = ComfyServer(comfyui, root, folder)
    try:
        running.wait_until_up()
        running.get("/object_info")
        running.get("/video_trainer/runs/none-00000000/events")
        running.modules = running.get("/test_probe/modules")[1]
        yield running
    finally:
        running.stop()


@pytest.fixture
def client(server: ComfyServer) -> Iterator[Client]:
    connected = server.client()
    yield connected
    connected.close()


def write_clips(folder: Path, frames: int = FRAMES) -> None:
    """A few captioned clips of moving noise."""
    import torch

    from trainer.video import write_mp4

    for index in range(CLIPS):
        noise = torch.randint(0, 256, (1, SIZE, SIZE, 3), generator=torch.Generator().manual_seed(index), dtype=torch.uint8)
        write_mp4(torch.cat([noise.roll(frame, dims=2) for frame in range(frames)]), folder / f"{index}.mp4", 16)
        (folder / f"{index}.txt").write_text(f"pattern {index} moving", encoding="utf-8")


def training_graph(name: str, steps: int, **train: Any) -> dict[str, Any]:
    """Tiny model and clips -> Train, in the form that /prompt takes."""
    settings = {"name": name, "steps": steps, "save_every": 1000, **train}
    return {
        "model": {"class_type": "VideoTrainerLoadModel", "inputs": {"source": "tiny", "path": ""}},
        "clips": {"class_type": "VideoTrainerVideoFolder", "inputs": {"folder": "clips"}},
        "buckets": {"class_type": "VideoTrainerFrameBuckets", "inputs": {"dataset": ["clips", 0], "sizes": f"{FRAMES}x{SIZE}x{SIZE}"}},
        "lora": {"class_type": "VideoTrainerLoRASettings", "inputs": {"rank": 2, "continue_from": "none"}},
        "samples": {"class_type": "VideoTrainerSamplePrompts", "inputs": {"prompts": "a pattern", "every": 1000, "steps": 2}},
        "train": {
            "class_type": "VideoTrainerTrain",
            "inputs": {
                "model": ["model", 0], "dataset": ["buckets", 0], "adapter": ["lora", 0], "samples": ["samples", 0], **settings,
            },
        },
    }  # fmt: skip
