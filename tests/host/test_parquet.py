"""Save Parquet, Load Parquet and Import Config in a real ComfyUI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.host.comfy_server import Client, ComfyServer, errors
from tests.host.conftest import FRAMES, SIZE, training_graph

pytestmark = [pytest.mark.host, pytest.mark.slow]

CONFIG = f"""
frame_buckets = [{FRAMES}]
resolutions = [{SIZE}]
[[directory]]
path = 'clips'
num_repeats = 2
"""
TRAINING = """
dataset = 'dataset.toml'
micro_batch_size_per_gpu = 1
max_steps = 77
[model]
type = 'wan'
[adapter]
type = 'lora'
rank = 3
"""


def saving(folder: str, **settings: Any) -> dict[str, Any]:
    """Clips -> Save Parquet -> Load Parquet -> Train."""
    made = training_graph("from parquet", steps=2)
    made["save"] = {
        "class_type": "VideoTrainerSaveParquet",
        "inputs": {"model": ["model", 0], "dataset": ["buckets", 0], "folder": folder, **settings},
    }
    made["load"] = {"class_type": "VideoTrainerLoadParquet", "inputs": {"folder": ["save", 0], "encoder": "tiny"}}
    made["train"]["inputs"]["dataset"] = ["load", 0]
    return made


def test_a_dataset_is_saved_loaded_and_trained_on(server: ComfyServer, client: Client) -> None:
    made = saving("parquet/clips")
    made["clips"]["inputs"]["repeats"] = 2
    history = client.run(made)
    assert errors(history) == []
    (told,) = history["outputs"]["save"]["text"]
    assert told.startswith("files written: 1") and "Repeats are not written" in told
    out = server.folder / "output/parquet/clips"
    assert [file.name for file in out.rglob("*.parquet")] == ["data_chunk_0.parquet"]
    run = server.folder / "output/video_trainer/from parquet"
    job = json.loads((run / "job.json").read_text(encoding="utf-8"))
    assert [(source["kind"], source["folder"]) for source in job["dataset"]["sources"]] == [("parquet", str(out.resolve()))]
    report = json.loads((run / "dataset.json").read_text(encoding="utf-8"))
    assert [clip["skipped"] for clip in report["clips"]] == ["", "", ""]


def test_what_was_saved_is_found_by_the_same_text(server: ComfyServer, client: Client) -> None:
    made = saving("parquet/same")
    assert errors(client.run({name: made[name] for name in ("model", "clips", "buckets", "save")})) == []
    made["load"]["inputs"]["folder"] = "parquet/same"
    del made["save"]
    assert errors(client.run(made)) == []
    made["load"]["inputs"]["folder"] = "parquet/other"
    status, answer = server.post("/prompt", {"prompt": made})
    told = str(answer["node_errors"]["load"]["errors"])
    assert status == 400 and str(server.folder / "input/parquet/other") in told and str(server.folder / "output/parquet/other") in told


@pytest.mark.parametrize("folder", ["../elsewhere", "/tmp/elsewhere", "", ".", "a/../../b"])
def test_nothing_is_written_outside_the_output_folder(server: ComfyServer, folder: str) -> None:
    status, answer = server.post("/prompt", {"prompt": saving(folder)})
    assert status == 400 and "inside ComfyUI's output folder" in str(answer["node_errors"]["save"]["errors"])


def test_an_imported_configuration_trains(server: ComfyServer, client: Client) -> None:
    write(server.folder / "input/dataset.toml", CONFIG)
    write(server.folder / "input/train.toml", TRAINING)
    made = training_graph("imported", steps=2)
    made["config"] = {"class_type": "VideoTrainerImportConfig", "inputs": {"files": "train.toml"}}
    made["table"] = {"class_type": "PreviewAny", "inputs": {"source": ["config", 4]}}
    made["train"]["inputs"] |= {"dataset": ["config", 0], "adapter": ["config", 1], "optimizer": ["config", 2]}
    history = client.run(made)
    assert errors(history) == []
    job = json.loads((server.folder / "output/video_trainer/imported/job.json").read_text(encoding="utf-8"))
    assert job["adapter"]["rank"] == 3 and job["schedule"]["steps"] == 2
    assert [(source["folder"], source["repeats"]) for source in job["dataset"]["sources"]] == [(str(server.folder / "input/clips"), 2)]
    told = str(history["outputs"]["table"])
    assert "schedule.steps = 77" in told and "adapter.rank = 3" in told


@pytest.mark.parametrize(
    ("files", "said"), [("", "no file is given"), ("gone.toml", "cannot be read"), ("clips/0.txt", "holds no command")]
)
def test_a_bad_configuration_marks_its_node(server: ComfyServer, files: str, said: str) -> None:
    made = training_graph("never", steps=1)
    made["config"] = {"class_type": "VideoTrainerImportConfig", "inputs": {"files": files}}
    made["train"]["inputs"]["dataset"] = ["config", 0]
    status, answer = server.post("/prompt", {"prompt": made})
    assert status == 400 and said in str(answer["node_errors"]["config"]["errors"])


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
