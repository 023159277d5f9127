"""What an imported configuration points to is watched as the source nodes watch theirs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.host.comfy_server import Client, ComfyServer, errors
from tests.host.conftest import training_graph

pytestmark = [pytest.mark.host, pytest.mark.slow]

CONFIG = "frame_buckets = [1, 9]\nresolutions = [32]\n[[directory]]\npath = 'watched'\n"


def edit_caption(folder: Path) -> None:
    (folder / "a.txt").write_text("another caption", encoding="utf-8")


def add_clip(folder: Path) -> None:
    shutil.copy(folder.parent / "clips/1.mp4", folder / "b.mp4")


@pytest.mark.parametrize("change", [edit_caption, add_clip])
def test_what_changes_beside_an_imported_configuration_runs_again(
    server: ComfyServer, client: Client, change: Callable[[Path], None]
) -> None:
    name, folder = f"imported {change.__name__}", server.folder / "input/watched"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(server.folder / "input/clips/0.mp4", folder / "a.mp4")
    (folder / "a.txt").write_text("a caption", encoding="utf-8")
    (server.folder / "input/watched.toml").write_text(CONFIG, encoding="utf-8")
    made = training_graph(name, steps=2)
    made["config"] = {"class_type": "VideoTrainerImportConfig", "inputs": {"files": "watched.toml"}}
    made["train"]["inputs"] |= {"dataset": ["config", 0], "adapter": ["config", 1]}
    runs = server.folder / "output/video_trainer"
    assert errors(client.run(made)) == []
    idle = client.queue(made)
    assert errors(client.finish(idle)) == [] and client.events(idle) == [] and not (runs / f"{name}-2").exists()
    change(folder)
    again = client.queue(made)
    assert errors(client.finish(again)) == []
    assert client.events(again)[-1]["type"] == "finished"
    job = json.loads((runs / f"{name}-2/job.json").read_text(encoding="utf-8"))
    assert [(source["folder"], source["images"]) for source in job["dataset"]["sources"]] == [(str(folder), True)]
