"""Training Goal in ComfyUI: its outputs link to the settings that they are for, and what it sets is shown and used."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.host.comfy_server import Client, ComfyServer
from tests.host.conftest import training_graph

pytestmark = pytest.mark.host

OUTPUTS = ("adapter", "optimizer", "steps", "batch_size", "timesteps", "shift", "buckets", "preset")
STYLE = {"rank": "32", "learning rate": "0.0001", "steps": "2000", "batch size": "1", "timesteps": "uniform", "shift": "the model's own"}


def link(output: str) -> list[Any]:
    return ["goal", OUTPUTS.index(output)]


def goal_graph(name: str, goal: str, memory: str) -> dict[str, Any]:
    """One step of training on what the goal sets, all but the steps linked."""
    graph = training_graph(name, steps=1)
    del graph["lora"]
    graph["goal"] = {"class_type": "VideoTrainerGoal", "inputs": {"model": ["model", 0], "goal": goal, "memory": memory}}
    graph["buckets"]["inputs"]["sizes"] = link("buckets")
    graph["samples"]["inputs"]["every"] = 0
    graph["train"]["inputs"] |= {name: link(name) for name in ("adapter", "optimizer", "batch_size", "timesteps", "shift")}
    return graph


def test_outputs_have_the_types_of_the_inputs_that_they_are_for(server: ComfyServer) -> None:
    about = server.get("/object_info/VideoTrainerGoal")[1]["VideoTrainerGoal"]
    types = dict(zip(OUTPUTS, about["output"], strict=True))
    train, buckets = (server.get(f"/object_info/{node}")[1][node]["input"] for node in ("VideoTrainerTrain", "VideoTrainerFrameBuckets"))
    taken = train["required"] | train["optional"]
    assert {name: taken[name][0] for name in OUTPUTS[:6]} == {name: types[name] for name in OUTPUTS[:6]}
    assert types["buckets"] == buckets["required"]["sizes"][0] == "STRING"


def test_a_run_has_what_the_goal_set_and_the_node_shows_it(server: ComfyServer, client: Client) -> None:
    done = client.run(goal_graph("styled", "style", "8 GB"))
    assert done["status"]["status_str"] == "success", done["status"]["messages"][-1]
    shown = done["outputs"]["goal"]["text"][0].splitlines()
    rows = {row[:15].strip(): row[16:] for row in shown[1:]}
    assert rows.items() >= STYLE.items() and rows["buckets"].startswith("9x")
    job = json.loads((server.folder / "output/video_trainer/styled/job.json").read_text(encoding="utf-8"))
    assert (job["adapter"]["rank"], job["optimizer"]["learning_rate"], job["schedule"]["batch_size"]) == (32, 1e-4, 1)
    assert (job["objective"]["timesteps"], job["objective"]["shift"]) == ("uniform", 0)
    assert job["schedule"]["steps"] == 1, "what is not linked stays"
    assert (
        ", ".join("x".join(str(bucket[side]) for side in ("frames", "height", "width")) for bucket in job["dataset"]["buckets"])
        in rows["buckets"]
    )


def test_a_plan_takes_the_steps_too(client: Client) -> None:
    graph = goal_graph("planned", "motion", "24 GB")
    linked = {name: link(name) for name in ("adapter", "optimizer", "steps", "batch_size")}
    inputs = {"model": ["model", 0], "dataset": ["buckets", 0], "card": "4090", **linked}
    graph["plan"] = {"class_type": "VideoTrainerPlan", "inputs": inputs}
    del graph["train"], graph["samples"]
    done = client.run(graph)
    assert done["status"]["status_str"] == "success", done["status"]["messages"][-1]
    assert "steps           3000" in done["outputs"]["goal"]["text"][0] and done["outputs"]["plan"]["text"][0]


def test_without_a_card_auto_is_24_gb(client: Client) -> None:
    graph = {name: part for name, part in goal_graph("auto", "character", "auto").items() if name in ("model", "goal")}
    done = client.run(graph)
    assert "with a card of 24 GB" in done["outputs"]["goal"]["text"][0]
