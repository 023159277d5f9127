"""Load Model Files for Training in a real ComfyUI: a run from its own folders' files, and refusals on the node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.host.comfy_server import Client, ComfyServer, errors
from tests.host.conftest import training_graph
from tests.tiny.single_files import write_single_files
from tests.tiny.wan import write_tiny_wan

pytestmark = [pytest.mark.host, pytest.mark.slow]

FILES = {"transformer": "diffusion_models", "vae": "vae", "text_encoder": "text_encoders"}  # written file -> ComfyUI's folder


@pytest.fixture(scope="module")
def names(server: ComfyServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The node's values for a tiny model's files below ComfyUI's folders."""
    made = tmp_path_factory.mktemp("files")
    write_single_files(write_tiny_wan(made / "folder"), made / "files")
    for file, kind in FILES.items():
        place = server.folder / "models" / kind / "single"
        place.mkdir(parents=True, exist_ok=True)
        (made / f"files/{file}.safetensors").rename(place / f"{file}.safetensors")
    chosen = {"transformer": "transformer", "vae": "vae", "text_encoder_1": "text_encoder"}
    return {name: str(Path("single") / f"{file}.safetensors") for name, file in chosen.items()}


def graph(names: dict[str, str], run: str, **train: Any) -> dict[str, Any]:
    made = training_graph(run, **{"steps": 2, **train})
    made["model"] = {"class_type": "VideoTrainerLoadModelFiles", "inputs": names}
    return made


def test_trains_and_draws_from_single_files(client: Client, names: dict[str, str]) -> None:
    made = graph(names, "single")
    made["draw"] = {
        "class_type": "VideoTrainerSampleVideo",
        "inputs": {"model": ["model", 0], "lora": ["train", 0], "prompt": "a pattern", "frames": 5, "height": 32, "width": 32, "steps": 2},
    }  # fmt: skip
    made["frames"] = {"class_type": "GetVideoComponents", "inputs": {"video": ["draw", 0]}}
    made["image"] = {"class_type": "PreviewImage", "inputs": {"images": ["frames", 0]}}
    history = client.run(made)
    assert errors(history) == []
    assert history["outputs"]["train"]["video_trainer_run"] and history["outputs"]["image"]["images"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"vae": "transformer"}, "model.vae: '"),
        ({"text_encoder_1": "vae"}, "is a Wan VAE. Choose a UMT5 text encoder."),
        ({"vae": "none"}, "model.vae: has no file for vae: this model needs a VAE."),
        ({"transformer": "gone.safetensors"}, "is not in ComfyUI's models/diffusion_models."),
    ],
)
def test_a_wrong_file_marks_the_node(server: ComfyServer, names: dict[str, str], changes: dict[str, str], said: str) -> None:
    places = {"transformer": "diffusion_models", "vae": "vae"}
    for slot, other in changes.items():  # the other file, put where this node's list finds it
        if other in places and (source := server.folder / f"models/{places[other]}/single/{other}.safetensors").is_file():
            folder = server.folder / "models" / ("text_encoders" if slot.startswith("text") else "vae") / "single"
            (folder / f"wrong_{other}.safetensors").write_bytes(source.read_bytes())
            changes = {slot: names["vae"].replace("vae.", f"wrong_{other}.")}
    status, answer = server.post("/prompt", {"prompt": graph({**names, **changes}, "refused"), "client_id": "x"})
    assert status == 400 and said in str(answer["node_errors"]["model"]["errors"])
