"""The trained LoRA in core nodes: every key loads, and core draws what Sample Video draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.host.comfy_server import Client, ComfyServer, errors
from tests.host.conftest import training_graph

pytestmark = [pytest.mark.host, pytest.mark.slow]

DEMO = Path(__file__).parents[2] / "trainer/demo/model"
PROMPT, SHIFT, STEPS, GUIDANCE, SEED = "a zorp turning on a white background", 3.0, 4, 5.0, 42


def core_nodes(unet: list[Any], model: list[Any], size: tuple[int, int, int]) -> dict[str, Any]:
    """MODEL -> Load LoRA Model -> KSampler, conditioned by Encode Prompt of the training model."""
    frames, height, width = size
    lora = {"lora": ["train", 1], "strength_model": 1.0, "bypass": False}
    return {
        "with_lora": {"class_type": "LoraModelLoader", "inputs": {"model": unet, **lora}},
        "shifted": {"class_type": "ModelSamplingSD3", "inputs": {"model": ["with_lora", 0], "shift": SHIFT}},
        "positive": {"class_type": "VideoTrainerEncodePrompt", "inputs": {"model": model, "text": PROMPT}},
        "negative": {"class_type": "VideoTrainerEncodePrompt", "inputs": {"model": model, "text": ""}},
        "noise": {"class_type": "EmptyHunyuanLatentVideo", "inputs": {"length": frames, "height": height, "width": width, "batch_size": 1}},
        "sampled": {
            "class_type": "KSampler",
            "inputs": {
                "model": ["shifted", 0], "positive": ["positive", 0], "negative": ["negative", 0], "latent_image": ["noise", 0],
                "seed": SEED, "steps": STEPS, "cfg": GUIDANCE, "sampler_name": "euler", "scheduler": "simple", "denoise": 1.0,
            },
        },
    }  # fmt: skip


def test_core_loads_every_key(server: ComfyServer, client: Client) -> None:
    graph = training_graph("core", steps=2)
    graph["unet"] = {"class_type": "UNETLoader", "inputs": {"unet_name": "tiny.safetensors", "weight_dtype": "default"}}
    graph |= core_nodes(["unet", 0], ["model", 0], (9, 32, 32))
    graph["save"] = {"class_type": "SaveLatent", "inputs": {"samples": ["sampled", 0], "filename_prefix": "core"}}
    history = client.run(graph)
    assert errors(history) == []
    assert history["outputs"]["save"]["latents"]
    assert "lora key not loaded" not in server.log


@pytest.fixture(scope="module")
def demo() -> Path:
    if not (DEMO / "model_index.json").is_file():
        pytest.skip("the demo model is not in this checkout")
    return DEMO


@pytest.mark.usefixtures("demo")
def test_only_linked_outputs_of_the_demo_model_are_loaded(server: ComfyServer, client: Client) -> None:
    written = server.folder / "output/diffusion_models/video_trainer_demo.safetensors"
    graph = {
        "demo": {"class_type": "VideoTrainerDemoModel", "inputs": {}},
        "text": {"class_type": "VideoTrainerEncodePrompt", "inputs": {"model": ["demo", 0], "text": PROMPT}},
        "shown": {"class_type": "PreviewAny", "inputs": {"source": ["text", 0]}},
    }
    assert errors(client.run(graph)) == []
    assert not written.exists()
    graph["shifted"] = {"class_type": "ModelSamplingSD3", "inputs": {"model": ["demo", 1], "shift": SHIFT}}
    graph["shown too"] = {"class_type": "PreviewAny", "inputs": {"source": ["shifted", 0]}}
    history = client.run(graph)
    assert errors(history) == []
    assert written.exists() and "ModelPatcher" in history["outputs"]["shown too"]["text"][0]


@pytest.mark.usefixtures("demo")
def test_core_draws_what_sample_video_draws(server: ComfyServer, client: Client) -> None:
    video = {"frames": 17, "height": 64, "width": 64}
    sampling = {"steps": STEPS, "guidance": GUIDANCE, "shift": SHIFT, "seed": SEED}
    model = ["demo", 0]
    graph = training_graph("demo", steps=2)
    graph |= {
        "demo": {"class_type": "VideoTrainerDemoModel", "inputs": {}},
        "clips": {"class_type": "VideoTrainerDemoClips", "inputs": {}},
        "buckets": {"class_type": "VideoTrainerFrameBuckets", "inputs": {"dataset": ["clips", 0], "sizes": "17x64x64"}},
        "ours": {
            "class_type": "VideoTrainerSampleVideo",
            "inputs": {
                "model": model, "lora": ["train", 0], "prompt": PROMPT, **sampling, **video,
            },
        },
        "our_frames": {"class_type": "GetVideoComponents", "inputs": {"video": ["ours", 0]}},
        "our_images": {"class_type": "PreviewImage", "inputs": {"images": ["our_frames", 0]}},
        **core_nodes(["demo", 1], model, (17, 64, 64)),
        "core_frames": {"class_type": "VAEDecode", "inputs": {"samples": ["sampled", 0], "vae": ["demo", 2]}},
        "core_images": {"class_type": "PreviewImage", "inputs": {"images": ["core_frames", 0]}},
    }  # fmt: skip
    del graph["model"]
    graph["train"]["inputs"]["model"] = model
    graph["samples"]["inputs"]["every"] = 0
    history = client.run(graph, limit=300)
    assert errors(history) == []
    assert "lora key not loaded" not in server.log
    ours, cores = (images(server, history["outputs"][node]["images"]) for node in ("our_images", "core_images"))
    assert ours.shape == cores.shape == (17, 64, 64, 3)
    assert ours.std() > 10, "a flat picture would agree with any other"
    assert np.abs(ours - cores).mean() < 1.0, "of 255"
    listed = server.get("/object_info/UNETLoader")[1]["UNETLoader"]["input"]["required"]["unet_name"]
    assert "video_trainer_demo.safetensors" in str(listed)


def images(server: ComfyServer, saved: list[dict[str, str]]) -> np.ndarray:
    return np.stack([np.asarray(Image.open(server.folder / "temp" / item["filename"]).convert("RGB"), dtype=np.float32) for item in saved])
