"""The monitor follows a real run: live, through Cancel and Run again, and over a reload of the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.canvas import Canvas

pytestmark = [pytest.mark.browser, pytest.mark.slow]
DEMO = "Video Trainer - Demo"
TRAIN, BUCKETS, SAMPLES = "VideoTrainerTrain", "VideoTrainerFrameBuckets", "VideoTrainerSamplePrompts"
ENDLESS = 100_000


@pytest.fixture(autouse=True)
def _demo_model(root: Path) -> None:
    if not (root / "trainer/demo/model/model_index.json").is_file():
        pytest.skip("the demo model is not in this checkout")


def start(canvas: Canvas, name: str, steps: int = ENDLESS) -> None:
    canvas.open_template(DEMO)
    short = [
        (TRAIN, "name", f"{name}-{canvas.renderer.replace(' ', '')}"), (TRAIN, "steps", steps), (TRAIN, "save_every", 1000),
        (TRAIN, "batch_size", 1), (BUCKETS, "sizes", "5x32x32"), (SAMPLES, "prompts", "a zorp turning\na red circle"),
        (SAMPLES, "every", 1000), (SAMPLES, "steps", 2),
    ]  # fmt: skip
    canvas.shorten(short)
    assert canvas.until("state.status === 'waiting' && state.drawn === 0")["phase"] == "Ready"
    canvas.run()


def playing(canvas: Canvas) -> bool:
    """Whether the first sample video's time moves."""
    seen = set()
    for _ in range(100):
        seen.add(canvas.state()["videos"][0]["time"])
        if len(seen) > 3:
            return True
        canvas.page.wait_for_timeout(100)
    return False


def test_a_run_is_shown_cancelled_resumed_and_found_again(canvas: Canvas) -> None:
    start(canvas, "life")
    live = canvas.until("state.status === 'running' && state.step >= 5 && state.videos.length === 2 && state.drawn > 500")
    canvas.picture("1 training")
    assert live["total"] == ENDLESS and live["phase"] == "Training"
    assert "–" not in live["stats"][:3], live["stats"]
    assert live["overflow"] == 0
    assert all(video["width"] > 0 for video in live["videos"])
    assert playing(canvas)
    first = canvas.run_id()

    canvas.cancel()
    stopped = canvas.until("['paused', 'stopped'].includes(state.status)")
    canvas.picture("2 cancelled")
    assert stopped["drawn"] > 500 and "Run again" in stopped["phase"]
    reached = max(event["step"] for event in canvas.events() if event["type"] == "step")

    canvas.run()
    canvas.until(f"state.status === 'running' && state.step > {reached}")
    assert canvas.run_id() == first
    assert [event["step"] for event in canvas.events() if event["type"] == "resumed"] == [reached]

    canvas.reload()
    back = canvas.until("state.status === 'running' && state.step >= 5 && state.videos.length === 2 && state.drawn > 500")
    canvas.picture("3 after a reload")
    assert canvas.run_id() == first
    assert playing(canvas)
    canvas.until(f"state.step > {back['step']}")

    canvas.press("Sample now")
    canvas.until("Number(document.querySelector('.vt-slider').max) >= 1")
    canvas.press("Save now")
    canvas.until("/^Saved: step/.test(document.querySelector('.vt-saved').textContent)")
    canvas.press("Stop and keep")
    kept = canvas.until("state.status === 'stopped' || state.status === 'finished'")
    canvas.picture("4 stopped and kept")
    steps = [event["step"] for event in canvas.events() if event["type"] == "step"]
    assert steps == list(range(1, len(steps) + 1))
    assert kept["drawn"] > 500
    assert canvas.errors == []


def test_a_finished_run_is_shown_after_a_reload_and_in_the_light_palette(canvas: Canvas) -> None:
    start(canvas, "short", steps=6)
    canvas.until("state.status === 'finished'")
    assert canvas.state()["theme"] == "dark"
    canvas.page.evaluate("app.extensionManager.setting.set('Comfy.ColorPalette', 'light')")
    canvas.until("state.theme === 'light'")
    canvas.picture("5 finished, light")
    canvas.reload()
    back = canvas.until("state.status === 'finished' && state.drawn > 500 && state.videos.length === 2")
    assert back["step"] == back["total"] == 6
    assert back["theme"] == "light"
    assert playing(canvas)
    assert canvas.errors == []


def test_the_renderer_can_be_changed_during_a_run(canvas: Canvas) -> None:
    start(canvas, "switch")
    canvas.until("state.step >= 2 && state.videos.length === 2")
    canvas.page.evaluate("(on) => app.extensionManager.setting.set('Comfy.VueNodes.Enabled', on)", canvas.renderer == "classic")
    canvas.page.wait_for_timeout(1000)
    canvas.show_train()
    before = canvas.state()["step"]
    after = canvas.until(f"state.step > {before or 0} && state.drawn > 500 && state.height > 300")
    assert after["width"] > 300
    assert playing(canvas)
    canvas.cancel()
    canvas.until("['paused', 'stopped'].includes(state.status)")
