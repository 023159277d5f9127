"""Two workflows in tabs whose nodes have the same ids: what a node gives comes to the workflow that was queued."""

from __future__ import annotations

import pytest

from tests.browser.canvas import Canvas
from tests.host.conftest import write_clips

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LISTEN = """() => {
  window.openThen = [];
  app.api.addEventListener("executed", () => window.openThen.push(app.rootGraph.id));
}"""
TAKE = "async () => { window.taken = await app.graphToPrompt(); }"
QUEUE = "() => app.api.queuePrompt(0, window.taken)"  # as the front end does, which here has opened another tab before the first result
SHOWN = """() => ({
  id: app.rootGraph.id, nodes: app.rootGraph.nodes.map((node) => node.id), reports: document.querySelectorAll(".vt-report").length,
  previews: document.querySelectorAll(".vt-preview[data-status=shown]").length,
  kept: app.rootGraph.nodes.flatMap((node) => Object.keys(node.properties)).filter((name) => name.startsWith("video_trainer")),
})"""


def open_tab(canvas: Canvas, number: int) -> None:
    """The tabs from the last one: a page begins with one of its own."""
    canvas.page.locator(".workflow-tab").nth(number).click()
    canvas.page.wait_for_timeout(1500)


def test_results_come_to_the_workflow_that_was_queued(canvas: Canvas) -> None:
    folder = f"in tabs {canvas.renderer}"  # for this renderer alone, as cached results come at once
    write_clips(canvas.server.folder / "input" / folder)
    page = canvas.page
    page.evaluate(LISTEN)
    for _ in range(2):
        page.evaluate("() => app.extensionManager.command.execute('Comfy.NewBlankWorkflow')")
        page.wait_for_timeout(1500)
        canvas.build_planned(folder, preview=True, scale=0.7)
        page.wait_for_timeout(500)
    open_tab(canvas, -2)
    queued = page.evaluate(SHOWN)
    page.evaluate(TAKE)
    open_tab(canvas, -1)
    page.evaluate(QUEUE)
    page.wait_for_function("() => window.openThen.length === 2", timeout=120_000)
    page.wait_for_timeout(1000)
    canvas.picture("9 the other tab")
    other = page.evaluate(SHOWN)
    assert {*page.evaluate("() => window.openThen")} == {other["id"]} != {queued["id"]} and other["nodes"] == queued["nodes"]
    assert (other["reports"], other["previews"], other["kept"]) == (0, 0, [])

    open_tab(canvas, -2)
    canvas.picture("10 the tab that was queued")
    seen = page.evaluate(SHOWN)
    assert (seen["id"], seen["reports"], seen["previews"]) == (queued["id"], 1, 1)
    assert {*seen["kept"]} == {"video_trainer_report", "video_trainer_preview"}
    open_tab(canvas, -1)
    assert page.evaluate(SHOWN) == other
    assert canvas.errors == []


def test_a_template_opened_twice_is_two_workflows(canvas: Canvas) -> None:
    ids = set()
    for _ in range(2):
        canvas.open_template("Video Trainer - Demo")
        canvas.page.wait_for_timeout(1500)
        ids.add(canvas.page.evaluate("() => app.rootGraph.id"))
    assert len(ids) == 2
