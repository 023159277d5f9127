"""The routes: read-only, and nothing outside the run folders."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.host.comfy_server import ComfyServer

pytestmark = pytest.mark.host

LINES = [b'{"type": "phase", "name": "train"}', b'{"type": "step", "step', b'{"type": "step", "step": 2}']  # the second half written


def write_run(folder: Path, id: str) -> None:
    about = {"id": id, "name": folder.name, "version": "0", "dataset": ""}
    (folder / "run.json").write_text(json.dumps(about), encoding="utf-8")
    (folder / "events.jsonl").write_bytes(b"\n".join(LINES) + b"\n")


@pytest.fixture(scope="module")
def run(server: ComfyServer) -> str:
    """A run folder as it may lie there from an earlier session."""
    folder = server.folder / "output/video_trainer/old run"
    folder.mkdir(parents=True)
    write_run(folder, "old run-0a1b2c3d")
    return "old run-0a1b2c3d"


def test_events_carry_their_line_number(server: ComfyServer, run: str) -> None:
    status, answer = server.get(f"/video_trainer/runs/{quote(run)}/events")
    assert status == 200
    assert answer["folder"] == "video_trainer/old run"
    assert [(event["index"], event["type"]) for event in answer["events"]] == [(0, "phase"), (2, "step")]


def test_events_after_a_line(server: ComfyServer, run: str) -> None:
    assert [event["index"] for event in server.get(f"/video_trainer/runs/{quote(run)}/events?after=0")[1]["events"]] == [2]
    assert server.get(f"/video_trainer/runs/{quote(run)}/events?after=2")[1]["events"] == []
    assert server.get(f"/video_trainer/runs/{quote(run)}/events?after=x")[0] == 400


@pytest.mark.parametrize("name", ["none-00000000", "old run-ffffffff", "../old run-0a1b2c3d", "..\\old run-0a1b2c3d", "..", "", "a\0b"])
def test_unknown_runs_are_not_found(server: ComfyServer, run: str, name: str) -> None:
    assert server.get(f"/video_trainer/runs/{quote(name, safe='')}/events")[0] == 404


def test_nothing_outside_the_run_folders_is_read(server: ComfyServer, run: str) -> None:
    outside = server.folder / "output/secret"
    outside.mkdir()
    write_run(outside, "../secret-0a1b2c3d")
    assert server.get(f"/video_trainer/runs/{quote('../secret-0a1b2c3d', safe='')}/events")[0] == 404


def test_requests_are_only_for_the_run_that_trains(server: ComfyServer, run: str) -> None:
    assert server.get("/video_trainer/active")[1]["run"] is None
    assert server.post(f"/video_trainer/runs/{quote(run)}/request", {"request": "stop"})[0] == 409
    assert server.post(f"/video_trainer/runs/{quote(run)}/request", {"request": "cancel"})[0] == 400
    assert server.post(f"/video_trainer/runs/{quote(run)}/request", b"not json")[0] == 400
    assert server.post(f"/video_trainer/runs/{quote(run)}/request", [1])[0] == 400
