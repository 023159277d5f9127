"""The dataset preview on the real canvas: what it shows, a caption edited on it, and found again after a reload."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.browser.canvas import Canvas
from trainer.video import write_mp4

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CLIPS = 3
BUILD = """(folder) => {
  app.graph.clear();
  const made = {};
  for (const [name, x, y] of [["DemoModel", 0, 0], ["VideoFolder", 0, 250], ["FrameBuckets", 0, 620], ["DatasetPreview", 460, 0]]) {
    made[name] = LiteGraph.createNode(`VideoTrainer${name}`);
    app.graph.add(made[name]);
    made[name].pos = [x, y];
  }
  const link = (from, to, name) => made[from].connect(0, made[to], made[to].inputs.findIndex((input) => input.name === name));
  link("DemoModel", "DatasetPreview", "model");
  link("VideoFolder", "FrameBuckets", "dataset");
  link("FrameBuckets", "DatasetPreview", "dataset");
  made.VideoFolder.widgets.find((widget) => widget.name === "folder").value = folder;
  made.FrameBuckets.widgets.find((widget) => widget.name === "sizes").value = "9x32x32";
  app.canvas.ds.scale = 0.8;
  app.canvas.ds.offset = [100, 140];
  app.canvas.setDirty(true, true);
}"""
STATE = """() => {
  const preview = document.querySelector(".vt-preview");
  const scroll = preview.querySelector(".vt-scroll");
  return {
    counts: [...preview.querySelectorAll(".vt-counts dd")].map((value) => value.textContent),
    buckets: [...preview.querySelectorAll(".vt-bucket")].map((row) => row.textContent),
    frames: [...preview.querySelectorAll(".vt-frames")].map((strip) => strip.children.length),
    captions: [...preview.querySelectorAll(".vt-caption-text")].map((text) => text.textContent),
    reasons: [...preview.querySelectorAll(".vt-left-out li")].map((line) => line.textContent),
    overflow: preview.scrollWidth - preview.clientWidth + scroll.scrollWidth - scroll.clientWidth,
    height: scroll.clientHeight,
  };
}"""
SHOWN = ".vt-preview[data-status=shown]"


@pytest.fixture
def folder(canvas: Canvas) -> Path:
    """Captioned clips and one that cannot be read, for this renderer alone."""
    import torch

    folder = canvas.server.folder / "input" / f"preview {canvas.renderer}"
    for number in range(CLIPS):
        noise = np.random.default_rng(number).integers(0, 256, (9, 32, 32, 3), np.uint8)
        write_mp4(torch.from_numpy(noise), folder / f"{number}.mp4", 16)
        (folder / f"{number}.txt").write_text(f"noise {number}", encoding="utf-8")
    (folder / "broken.mp4").write_bytes(b"no video")
    return folder


def test_a_dataset_is_shown_edited_and_found_again(canvas: Canvas, folder: Path) -> None:
    page = canvas.page
    page.evaluate(BUILD, folder.name)
    page.wait_for_selector(".vt-preview[data-status=waiting]")
    canvas.run()
    page.wait_for_selector(SHOWN, timeout=120_000)
    page.wait_for_timeout(1000)
    canvas.picture("6 dataset preview")
    seen = page.evaluate(STATE)
    assert seen["counts"] == [str(CLIPS), "1", "0", "0"]
    assert seen["buckets"] == [f"9×32×32{CLIPS}"] and seen["frames"] == [4] * CLIPS
    assert seen["captions"] == [f"noise {number}" for number in range(CLIPS)]
    assert [line.split()[0] for line in seen["reasons"]] == ["broken.mp4"]
    assert seen["overflow"] == 0 and seen["height"] > 200

    page.locator(".vt-edit").nth(1).click()
    page.locator(".vt-caption-area").fill("a caption typed here")
    page.locator(".vt-caption-area").press("Control+Enter")
    page.wait_for_function("document.querySelectorAll('.vt-caption-text')[1]?.textContent === 'a caption typed here'", timeout=30_000)
    assert (folder / "1.txt").read_text(encoding="utf-8") == "a caption typed here\n"
    assert (folder / "1.txt.bak").read_text(encoding="utf-8") == "noise 1"

    page.wait_for_timeout(2000)  # the front end keeps the graph in the browser now and then
    page.reload()
    canvas.wait_for_app()
    page.wait_for_selector(SHOWN, timeout=30_000)
    assert page.evaluate(STATE)["captions"][1] == "a caption typed here"
    canvas.run()
    page.wait_for_selector(SHOWN)
    assert page.evaluate(STATE)["captions"][1] == "a caption typed here"
    assert canvas.errors == []
