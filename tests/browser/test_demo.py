"""The demo workflow as it ships: exported by the front end, queued, finished, both branches seen."""

from __future__ import annotations

import time

import av
import numpy as np
import pytest

from tests.browser.canvas import Canvas
from trainer.demo.command import STEPS

pytestmark = [pytest.mark.browser, pytest.mark.slow]
LIMIT = 900.0  # seconds, on a busy machine


@pytest.mark.parametrize("canvas", ["classic"], indirect=True)
def test_the_demo_finishes_through_the_api(canvas: Canvas) -> None:
    canvas.open_template("Video Trainer - Demo")
    prompt = canvas.page.evaluate("() => app.graphToPrompt().then((graph) => graph.output)")
    status, answer = canvas.server.post("/prompt", {"prompt": prompt, "client_id": "acceptance"})
    assert status == 200, answer
    history, end = {}, time.monotonic() + LIMIT
    while not history:
        assert time.monotonic() < end, canvas.server.log[-3000:]
        time.sleep(1)
        history = canvas.server.get(f"/history/{answer['prompt_id']}")[1]
    done = history[answer["prompt_id"]]
    assert done["status"]["status_str"] == "success", done["status"]
    train = next(key for key, node in prompt.items() if node["class_type"] == "VideoTrainerTrain")
    run = done["outputs"][train]["video_trainer_run"][0]
    kinds = [event["type"] for event in canvas.server.get(f"/video_trainer/runs/{run}/events")[1]["events"]]
    assert kinds.count("step") == STEPS and kinds[-1] == "finished"
    savers = [key for key, node in prompt.items() if node["class_type"] == "SaveVideo"]
    ours, cores = (frames(canvas, done["outputs"][key]) for key in savers)
    assert ours.shape == cores.shape == (17, 64, 64, 3)
    assert ours.std() > 5 and np.abs(ours.astype(float) - cores).mean() < 25, (
        "the two branches show the same thing; what, the acceptance file judges"
    )
    assert "lora key not loaded" not in canvas.server.log


def frames(canvas: Canvas, output: dict) -> np.ndarray:
    saved = next(iter(output.values()))[0]
    path = canvas.server.folder / "output" / saved["subfolder"] / saved["filename"]
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
