"""Every source node in a real ComfyUI: combined they train, bad input marks the node, and changed files are noticed."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.host.comfy_server import Client, ComfyServer, errors
from tests.host.conftest import training_graph
from trainer.source_settings import SOURCES as KINDS

pytestmark = [pytest.mark.host, pytest.mark.slow]

SOURCES = {  # node -> its place below the input folder
    "VideoFolder": {"folder": "kinds/folder"},
    "PairedFolders": {"folder": "kinds/paired"},
    "VideoList": {"folder": "kinds/list"},
    "MetadataTable": {"file": "kinds/table/metadata.csv"},
    "CaptionJson": {"file": "kinds/json"},
    "HubDataset": {"source": "kinds/hub"},
    "WebDataset": {"path": "kinds/tars"},
}

PLACES = {kind: next(iter(place.values())).split("/")[1] for kind, place in SOURCES.items()}  # folder below kinds/


@pytest.fixture(scope="module")
def kinds(server: ComfyServer) -> Path:
    """One clip in every format."""
    root, clip = server.folder / "input/kinds", server.folder / "input/clips/1.mp4"
    for name in ("folder", "paired/videos", "paired/captions", "list", "table", "json/videos", "hub", "tars"):
        (root / name).mkdir(parents=True)
    for name in ("folder/a.mp4", "paired/videos/a.mp4", "list/a.mp4", "table/a.mp4", "json/videos/a.mp4"):
        shutil.copy(clip, root / name)
    for name, text in (
        ("folder/a.txt", "of a folder"),
        ("paired/captions/a.txt", "of a pair"),
        ("list/videos.txt", "a.mp4\n"),
        ("list/prompts.txt", "of a list\n"),
        ("table/metadata.csv", "file_name,text\na.mp4,of a table\n"),
        ("json/videos2caption.json", json.dumps([{"path": "a.mp4", "cap": ["of a json", "or two"]}])),
        ("tars/a.txt", "of a tar"),
    ):
        (root / name).write_text(text, encoding="utf-8")
    parquet.write_table(pa.table({"video": [clip.read_bytes()], "caption": ["of a row"]}), root / "hub/rows.parquet")
    with tarfile.open(root / "tars/x.tar", "w") as tar:
        tar.add(clip, "a.mp4")
        tar.add(root / "tars/a.txt", "a.txt")
    return root


def graph(name: str) -> dict[str, Any]:
    """Every source, each with a caption edit of its own, combined and trained on."""
    made = training_graph(name, steps=2)
    del made["clips"]
    combined = {}
    for number, (kind, place) in enumerate(SOURCES.items()):
        made[kind] = {"class_type": f"VideoTrainer{kind}", "inputs": place}
        made[f"edit {kind}"] = {"class_type": "VideoTrainerCaptionEdit", "inputs": {"dataset": [kind, 0], "prefix": f"t{number}"}}
        combined[f"datasets.dataset{number}"] = [f"edit {kind}", 0]
    made["combined"] = {"class_type": "VideoTrainerCombineDatasets", "inputs": combined}
    made["buckets"]["inputs"]["dataset"] = ["combined", 0]
    return made


def test_all_sources_combined_train_and_a_replaced_clip_is_noticed(server: ComfyServer, client: Client, kinds: Path) -> None:
    assert errors(client.run(graph("all kinds"))) == []
    run = server.folder / "output/video_trainer/all kinds"
    job = json.loads((run / "job.json").read_text(encoding="utf-8"))
    assert [source["kind"] for source in job["dataset"]["sources"]] == [kind for kind in KINDS if kind != "parquet"]
    assert [source["caption_edits"][0]["prefix"] for source in job["dataset"]["sources"]] == [f"t{number}" for number in range(7)]
    clips = json.loads((run / "dataset.json").read_text(encoding="utf-8"))["clips"]
    assert [clip["skipped"] for clip in clips] == [""] * len(SOURCES)

    shutil.copy(server.folder / "input/clips/2.mp4", kinds / "list/a.mp4")
    again = client.queue(graph("all kinds"))
    client.finish(again)
    assert client.events(again)[-1]["type"] == "finished" and (server.folder / "output/video_trainer/all kinds-2").is_dir()


def replace_clip(kinds: Path, kind: str, clip: Path) -> None:
    """Puts another clip in the place of a source's, under the same name."""
    for file in kinds.rglob("a.mp4"):
        if file.relative_to(kinds).parts[0] == PLACES[kind]:
            shutil.copy(clip, file)
    if kind == "HubDataset":
        parquet.write_table(pa.table({"video": [clip.read_bytes()], "caption": ["of a row"]}), kinds / "hub/rows.parquet")
    if kind == "WebDataset":
        with tarfile.open(kinds / "tars/x.tar", "w") as tar:
            tar.add(clip, "a.mp4")
            tar.add(kinds / "tars/a.txt", "a.txt")


@pytest.mark.parametrize("kind", SOURCES)
def test_each_source_trains_the_demo_model_and_a_replaced_clip_runs_again(
    server: ComfyServer, client: Client, kinds: Path, kind: str
) -> None:
    name, clips = f"demo {kind}", server.folder / "input/clips"
    made = training_graph(name, steps=5)
    made["model"] = {"class_type": "VideoTrainerDemoModel", "inputs": {}}
    made["clips"] = {"class_type": f"VideoTrainer{kind}", "inputs": SOURCES[kind]}
    runs = server.folder / "output/video_trainer"
    replace_clip(kinds, kind, clips / "1.mp4")
    first = client.queue(made)
    assert errors(client.finish(first)) == []
    assert [event["step"] for event in client.events(first) if event["type"] == "step"] == [1, 2, 3, 4, 5]
    idle = client.queue(made)
    assert errors(client.finish(idle)) == [] and client.events(idle) == [] and not (runs / f"{name}-2").exists()
    replace_clip(kinds, kind, clips / "0.mp4")
    again = client.queue(made)
    assert errors(client.finish(again)) == []
    assert client.events(again)[-1]["type"] == "finished" and (runs / f"{name}-2").is_dir()


@pytest.mark.parametrize(
    ("node", "changes", "said"),
    [
        ("PairedFolders", {"captions": "texts"}, "does not exist"),
        ("VideoList", {"captions": "videos.csv"}, "does not exist"),
        ("MetadataTable", {"file": "kinds/table/a.mp4"}, "is no table"),
        ("MetadataTable", {"video_column": "clip"}, "'file_name', 'text'"),
        ("CaptionJson", {"file": "kinds/folder"}, "videos2caption.json"),
        ("HubDataset", {"source": "no/such"}, "downloads are off"),
        ("HubDataset", {"caption_column": "cap"}, "'video', 'caption'"),
        ("WebDataset", {"path": "kinds/folder"}, "holds none"),
        ("WebDataset", {"repeats": 0}, "repeats"),
    ],
)
def test_bad_input_marks_its_source(server: ComfyServer, kinds: Path, node: str, changes: dict[str, Any], said: str) -> None:
    made = graph("never")
    made[node]["inputs"] = made[node]["inputs"] | changes
    status, answer = server.post("/prompt", {"prompt": made})
    assert status == 400 and said in str(answer["node_errors"][node]["errors"])
