"""Caption Clips and Clips to Images in a real ComfyUI: captions are written, trained with, and never written elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.host.comfy_server import Client, ComfyServer, errors
from tests.host.conftest import FRAMES, SIZE, training_graph

pytestmark = [pytest.mark.host, pytest.mark.slow]


@pytest.fixture
def clips(server: ComfyServer, request: pytest.FixtureRequest) -> Path:
    """Two clips without captions and one with, in a folder of the test's own below input."""
    folder = server.folder / "input" / request.node.name
    folder.mkdir()
    for name in ("0.mp4", "1.mp4", "2.mp4", "1.txt"):
        shutil.copy(server.folder / "input/clips" / name, folder)
    return folder


def captioning(folder: str, **settings: Any) -> dict[str, Any]:
    """Video Folder and a CLIP -> Caption Clips -> a text that shows the captions."""
    return {
        "clips": {"class_type": "VideoTrainerVideoFolder", "inputs": {"folder": folder}},
        "clip": {"class_type": "TestClip", "inputs": {"says": "moving noise", "cancels": False}},
        "write": {
            "class_type": "VideoTrainerCaptionClips",
            "inputs": {"dataset": ["clips", 0], "clip": ["clip", 0], "frames": 4, **settings},
        },
        "shown": {"class_type": "PreviewAny", "inputs": {"source": ["write", 1]}},
    }


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8").strip() for path in sorted(folder.iterdir()) if path.suffix != ".mp4"}


def test_captions_are_written_trained_with_and_seen_anew(server: ComfyServer, client: Client, clips: Path) -> None:
    made = training_graph("captioned", steps=1) | captioning(clips.name)
    made["buckets"]["inputs"]["dataset"] = ["write", 0]
    history = client.run(made)
    assert errors(history) == []
    assert texts(clips) == {"0.txt": "moving noise 4", "1.txt": "pattern 1 moving", "2.txt": "moving noise 4"}
    assert "2 captions written, 0 replaced, 1 kept" in str(history["outputs"]["write"]["text"])
    run = server.folder / "output/video_trainer/captioned"
    report = json.loads((run / "dataset.json").read_text(encoding="utf-8"))
    assert report["captions"] == {"file": 3, "setting": 0, "none": 0}

    (clips / "0.txt").write_text("another caption", encoding="utf-8")
    again = client.queue(made)
    assert errors(client.finish(again)) == []
    assert client.events(again)[-1]["type"] == "finished" and (server.folder / "output/video_trainer/captioned-2").is_dir()
    assert texts(clips)["0.txt"] == "another caption"


def test_overwriting_keeps_a_copy(server: ComfyServer, client: Client, clips: Path) -> None:
    assert errors(client.run(captioning(clips.name, existing="overwrite"))) == []
    assert texts(clips) == dict.fromkeys(("0.txt", "1.txt", "2.txt"), "moving noise 4") | {"1.txt.bak": "pattern 1 moving"}


def test_cancel_stops_between_clips_and_keeps_what_was_written(server: ComfyServer, client: Client, clips: Path) -> None:
    made = captioning(clips.name)
    made["clip"]["inputs"]["cancels"] = True
    status = client.run(made)["status"]
    assert "execution_interrupted" in [name for name, _ in status["messages"]]
    assert texts(clips) == {"0.txt": "moving noise 4", "1.txt": "pattern 1 moving"}


def test_another_captioner_is_looped_in(server: ComfyServer, client: Client, clips: Path) -> None:
    made = captioning(clips.name, captions=["say", 0])
    del made["clip"], made["write"]["inputs"]["clip"]
    made["look"] = {"class_type": "VideoTrainerClipsToImages", "inputs": {"dataset": ["clips", 0]}}
    made["say"] = {"class_type": "TestCaptioner", "inputs": {"image": ["look", 0]}}
    assert errors(client.run(made)) == []
    said = f"an image of {SIZE} x {SIZE}"
    assert texts(clips) == {"0.txt": said, "1.txt": "pattern 1 moving", "2.txt": said}


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"captions": ["one", 0], "clip": None}, "1 captions were given for 3 clips"),
        ({"captions": ["one", 0]}, "both a clip and captions are linked"),
        ({"clip": None}, "neither a clip nor captions are linked"),
    ],
)
def test_what_cannot_be_is_said(server: ComfyServer, client: Client, inputs: dict[str, Any], said: str) -> None:
    made = captioning("clips", **inputs)
    made["write"]["inputs"] = {name: value for name, value in made["write"]["inputs"].items() if value is not None}
    made["one"] = {"class_type": "TestCaptioner", "inputs": {"image": ["black", 0]}}
    made["black"] = {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": FRAMES, "color": 0}}
    (error,) = errors(client.run(made))
    assert said in error["exception_message"]


def test_nothing_is_written_outside_input_and_output(server: ComfyServer, client: Client, tmp_path: Path) -> None:
    shutil.copy(server.folder / "input/clips/0.mp4", tmp_path)
    (error,) = errors(client.run(captioning(str(tmp_path))))
    assert "Move the folder into ComfyUI's input folder" in error["exception_message"]
    assert [path.name for path in tmp_path.iterdir()] == ["0.mp4"]
