"""Training in a real ComfyUI: results, events, cancel and resume, and errors on the right node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.host.comfy_server import Client, ComfyServer, errors, until
from tests.host.conftest import training_graph

pytestmark = [pytest.mark.host, pytest.mark.slow]

PREVIEW = "PreviewAny"


def losses(events: list[dict[str, Any]]) -> list[float]:
    """The loss of each step, later tellings of a step replacing earlier ones."""
    return list({event["step"]: event["loss"] for event in events if event["type"] == "step"}.values())


def log_of(server: ComfyServer, run: str) -> list[dict[str, Any]]:
    return server.get(f"/video_trainer/runs/{run}/events")[1]["events"]


def test_a_run_is_heard_and_its_results_are_on_disk(server: ComfyServer, client: Client) -> None:
    graph = training_graph("heard", steps=3)
    prompt = client.queue(graph, workflow={"id": "the-graph"})
    assert server.get(f"/video_trainer/prompts/{prompt}")[1] == {"workflow": "the-graph"}
    history = client.finish(prompt)
    assert errors(history) == []
    assert server.get(f"/video_trainer/prompts/{prompt}")[1] == {"workflow": "the-graph"}
    events = client.events(prompt)
    run = events[0]["run"]
    assert history["outputs"]["train"]["video_trainer_run"] == [run]
    assert len(losses(events)) == 3
    assert {"step", "sample", "checkpoint", "finished"} <= {event["type"] for event in events}
    logged = log_of(server, run)
    assert logged[-len(events) :] == events
    assert [event["index"] for event in logged] == list(range(len(logged)))
    output = server.folder / "output"
    assert (output / "video_trainer/heard/graph.json").is_file()
    assert (output / "loras/heard/heard-step-000003.safetensors").is_file()
    listed = server.get("/object_info/LoraLoaderModelOnly")[1]["LoraLoaderModelOnly"]["input"]["required"]["lora_name"]
    assert "heard-step-000003.safetensors" in str(listed)
    sample = next(event["file"] for event in reversed(events) if event["type"] == "sample")
    folder, _, name = f"video_trainer/heard/{sample}".rpartition("/")
    assert server.get(f"/view?type=output&subfolder={folder}&filename={name}")[0] == 200


def test_outputs_go_on_to_core_nodes(server: ComfyServer, client: Client) -> None:
    graph = training_graph("outputs", steps=2)
    graph["plot"] = {"class_type": "LossGraphNode", "inputs": {"loss": ["train", 2], "filename_prefix": "loss"}}
    graph["save_lora"] = {"class_type": "SaveLoRA", "inputs": {"lora": ["train", 1], "prefix": "loras/resaved"}}
    graph["frames"] = {"class_type": "GetVideoComponents", "inputs": {"video": ["train", 3]}}
    graph["image"] = {"class_type": "PreviewImage", "inputs": {"images": ["frames", 0]}}
    graph["folder"] = {"class_type": PREVIEW, "inputs": {"source": ["train", 4]}}
    graph["draw"] = {
        "class_type": "VideoTrainerSampleVideo",
        "inputs": {"model": ["model", 0], "lora": ["train", 0], "prompt": "a pattern", "frames": 5, "height": 32, "width": 32, "steps": 2},
    }
    graph["save"] = {
        "class_type": "SaveVideo",
        "inputs": {"video": ["draw", 0], "filename_prefix": "drawn", "format": "auto", "codec": "auto"},
    }
    history = client.run(graph)
    assert errors(history) == []
    assert len(history["outputs"]["image"]["images"]) == 9
    assert Path(history["outputs"]["folder"]["text"][0]) == server.folder / "output/video_trainer/outputs"
    assert history["outputs"]["plot"]["images"] and history["outputs"]["save"]["images"]
    assert list((server.folder / "output/loras").glob("resaved*"))


def test_cancel_keeps_progress_and_the_run_goes_on_as_if_never_stopped(server: ComfyServer, client: Client) -> None:
    whole = client.queue(training_graph("whole", steps=30))
    client.finish(whole)

    cancelled = client.queue(training_graph("cancelled", steps=30))
    client.wait_for(cancelled, "step")
    server.post("/interrupt", {"prompt_id": cancelled})
    history = client.finish(cancelled)
    assert [name for name, _ in history["status"]["messages"]][-1] == "execution_interrupted"
    stopped = client.events(cancelled)[-1]
    assert stopped["type"] == "stopped" and 0 < stopped["step"] < 30
    assert server.get("/video_trainer/active")[1]["run"] is None

    resumed = client.queue(training_graph("cancelled", steps=30))
    assert errors(client.finish(resumed)) == []
    events = client.events(resumed)
    assert [event["step"] for event in events if event["type"] == "resumed"] == [stopped["step"]]
    assert events[-1]["type"] == "finished"
    assert losses(log_of(server, stopped["run"])) == losses(client.events(whole))


def test_stop_and_keep_ends_early_and_running_again_goes_on(server: ComfyServer, client: Client) -> None:
    graph = training_graph("stopped", steps=40)
    prompt = client.queue(graph)
    run = client.wait_for(prompt, "step")["run"]
    assert server.get("/video_trainer/active")[1] == {"run": run, "node": "train", "prompt": prompt}
    assert server.get(f"/video_trainer/prompts/{prompt}")[1] == {"workflow": None}
    assert server.post(f"/video_trainer/runs/{run}/request", {"request": "stop"})[0] == 202
    assert errors(client.finish(prompt)) == []
    steps = client.events(prompt)[-1]["step"]
    assert client.events(prompt)[-1]["type"] == "stopped" and steps < 40
    assert (server.folder / f"output/loras/stopped/stopped-step-{steps:06d}.safetensors").is_file()
    again = client.queue(graph)
    assert errors(client.finish(again)) == []
    assert client.events(again)[-1]["type"] == "finished"


def test_a_share_of_the_blocks_that_is_no_choice_of_the_widget_is_taken_or_told(server: ComfyServer, client: Client) -> None:
    """Graphs saved while the widget was a number hold numbers, and a graph through the API may hold any share."""
    prompt = client.queue(training_graph("share", steps=1, layer_offload_fraction=0.33))
    assert errors(client.finish(prompt)) == []
    assert '"layer_offload_fraction": 0.33' in (server.folder / "output/video_trainer/share/job.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("share", [2, -0.5, "x", None, {"a": 1}])
@pytest.mark.parametrize("node", ["train", "plan"])
def test_a_share_that_is_none_is_told_once(server: ComfyServer, node: str, share: Any) -> None:
    """It was told of the run's name as well."""
    graph = training_graph("share", steps=1)
    links = {name: graph["train"]["inputs"][name] for name in ("model", "dataset")}
    graph[node] = {"class_type": f"VideoTrainer{node.title()}", "inputs": {**links, "layer_offload_fraction": share}}
    if node == "plan":
        del graph["train"]
    status, answer = server.post("/prompt", {"prompt": graph})
    assert status == 400
    (error,) = answer["node_errors"][node]["errors"]
    assert (
        error["extra_info"]["input_name"] == "layer_offload_fraction"
        and f"{share!r} not in auto or any number from 0 to 1" in error["details"]
    )


def test_an_unchanged_graph_trains_only_once(client: Client) -> None:
    graph = training_graph("once", steps=2)
    client.run(graph)
    again = client.queue(graph)
    cached = client.finish(again)
    assert errors(cached) == [] and client.events(again) == []
    assert cached["outputs"]["train"]["video_trainer_run"]


def test_start_new_trains_each_time(server: ComfyServer, client: Client) -> None:
    graph = training_graph("anew", steps=1, if_exists="start new")
    for _ in range(2):
        assert errors(client.run(graph)) == []
    assert {path.name for path in (server.folder / "output/video_trainer").glob("anew*")} == {"anew", "anew-2"}


def test_a_changed_clip_is_noticed(server: ComfyServer, client: Client) -> None:
    graph = training_graph("noticed", steps=2)
    client.run(graph)
    (server.folder / "input/clips/0.txt").write_text("another caption", encoding="utf-8")
    again = client.queue(graph)
    client.finish(again)
    assert client.events(again)[-1]["type"] == "finished"


@pytest.mark.parametrize(
    ("node", "changes", "said"),
    [
        ("clips", {"folder": "nowhere"}, "nowhere"),
        ("clips", {"folder": ""}, "is empty"),
        ("clips", {"folder": "."}, "no video"),
        ("model", {"path": "/nowhere/model"}, "/nowhere/model"),
        ("model", {"source": "", "path": ""}, "Choose one of the list"),
        ("model", {"path": "some/unknown"}, "downloads are off"),
        ("train", {"name": "../outside"}, "name"),
        ("train", {"name": "C:\\outside"}, "name"),
        ("train", {"name": ""}, "empty"),
        ("train", {"steps": 0}, "steps"),
    ],
)
def test_bad_input_marks_its_own_node_before_anything_runs(server: ComfyServer, node: str, changes: dict[str, Any], said: str) -> None:
    graph = training_graph("never", steps=1)
    (server.folder / "input/empty").mkdir(exist_ok=True)
    if changes == {"folder": "."}:
        changes = {"folder": "empty"}
    graph[node]["inputs"] |= changes
    status, answer = server.post("/prompt", {"prompt": graph})
    assert status == 400
    assert node in answer["node_errors"]
    assert said in str(answer["node_errors"][node]["errors"])


def test_all_faults_of_prompts_are_told_at_once(server: ComfyServer) -> None:
    graph = training_graph("faulty", steps=1)
    graph["samples"]["inputs"]["prompts"] = "fine\none | two | three | four | five\nx | | 12by12 | \ny | | | soon"
    graph["buckets"]["inputs"]["sizes"] = "480p"
    status, answer = server.post("/prompt", {"prompt": graph})
    assert status == 400 and {"samples", "buckets"} <= answer["node_errors"].keys()
    text = str(answer["node_errors"]["samples"]["errors"])
    assert all(f"line {number}" in text for number in (2, 3, 4)) and "line 1" not in text


def test_faults_found_while_running_are_one_error_of_the_node(client: Client) -> None:
    graph = training_graph("unfit", steps=1)
    graph["samples"]["inputs"]["prompts"] = "a pattern | | 10x32x32"
    failed = errors(client.run(graph))
    assert [error["node_id"] for error in failed] == ["train"]
    assert failed[0]["exception_type"].endswith("UserError") and "10" in failed[0]["exception_message"]


def test_cancel_ends_sampling(server: ComfyServer, client: Client) -> None:
    graph = training_graph("unused", steps=1)
    size = {"frames": 5, "height": 32, "width": 32, "steps": 1000}
    graph["draw"] = {"class_type": "VideoTrainerSampleVideo", "inputs": {"model": ["model", 0], "prompt": "a pattern", **size}}
    graph["frames"] = {"class_type": "GetVideoComponents", "inputs": {"video": ["draw", 0]}}
    graph["image"] = {"class_type": "PreviewImage", "inputs": {"images": ["frames", 0]}}
    del graph["train"]
    prompt = client.queue(graph)
    progressed = {"type": "progress", "node": "draw"}
    until(lambda: client.read(1.0) and any(progress_of(m) == progressed for m in client.messages), 60, lambda: server.log[-2000:])
    server.post("/interrupt", {})
    assert [name for name, _ in client.finish(prompt)["status"]["messages"]][-1] == "execution_interrupted"


def progress_of(message: dict[str, Any]) -> dict[str, Any]:
    return {"type": message["type"], "node": message["data"].get("node")}


def test_the_server_still_answers(server: ComfyServer) -> None:
    until(lambda: server.get("/video_trainer/active")[1]["node"] is None, 10, lambda: "a run is still active")
    assert "Traceback" not in server.log.split("Starting server")[0]
