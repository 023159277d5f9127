"""Plan Training in a real ComfyUI: the plan of what is linked, for a card that is not there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.host.comfy_server import Client, ComfyServer, errors, until
from tests.host.conftest import FRAMES, SIZE

pytestmark = [pytest.mark.host, pytest.mark.slow]


def graph(**settings: Any) -> dict[str, Any]:
    return {
        "model": {"class_type": "VideoTrainerLoadModel", "inputs": {"source": "tiny", "path": ""}},
        "clips": {"class_type": "VideoTrainerVideoFolder", "inputs": {"folder": "clips"}},
        "buckets": {"class_type": "VideoTrainerFrameBuckets", "inputs": {"dataset": ["clips", 0], "sizes": f"{FRAMES}x{SIZE}x{SIZE}"}},
        "plan": {
            "class_type": "VideoTrainerPlan",
            "inputs": {"model": ["model", 0], "dataset": ["buckets", 0], "fit_into": 0.0, "steps": 100, "batch_size": 2, **settings},
        },
    }  # fmt: skip


def test_the_plan_is_shown(client: Client) -> None:
    history = client.run(graph(card="RTX 4090"))
    assert errors(history) == []
    (text,) = history["outputs"]["plan"]["text"]
    assert "RTX 4090, 24.0 GB to use" in text and f"{FRAMES}x{SIZE}x{SIZE}, batch 2" in text and "s a step" in text


def test_a_machine_without_a_card_asks_for_its_name(client: Client) -> None:
    (error,) = errors(client.run(graph(card="")))
    assert "Name one of" in error["exception_message"]


def test_the_node_tells_what_is_on_and_cancel_ends_it(server: ComfyServer, client: Client) -> None:
    """A size that no other test plans, so that its steps must be rehearsed."""
    made = graph(card="RTX 4090", batch_size=3)
    made["buckets"]["inputs"]["sizes"] = f"{FRAMES}x{2 * SIZE}x{SIZE}"
    prompt = client.queue(made)
    until(lambda: client.read() and client.texts("plan"), 180, lambda: f"nothing is told:\n{server.log[-4000:]}")
    server.post("/interrupt", {"prompt_id": prompt})
    history = client.finish(prompt)
    assert "rehearsing steps" in client.texts("plan")[0]
    assert [name for name, _ in history["status"]["messages"]][-1] == "execution_interrupted"
    assert errors(client.run(made)) == []
