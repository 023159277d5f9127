"""What a node says when it is done, on the real canvas: the plan of a training, also after a reload of the page."""

from __future__ import annotations

import pytest

from tests.browser.canvas import Canvas
from tests.host.conftest import write_clips

pytestmark = [pytest.mark.browser, pytest.mark.slow]

STATE = """() => {
  const report = document.querySelector(".vt-report");
  const texts = (row) => [...row.children].map((part) => part.textContent);
  return {
    rows: Object.fromEntries([...report.querySelectorAll(".vt-report-row")].map(texts)),
    title: report.querySelector(".vt-report-text").textContent,
    overflow: report.scrollWidth - report.clientWidth,
    height: report.clientHeight,
    hidden: report.scrollHeight - report.clientHeight,
    size: [...app.rootGraph.nodes.find((node) => node.type === "VideoTrainerPlan").size],
  };
}"""


def test_a_plan_is_shown_on_its_node_and_found_again(canvas: Canvas) -> None:
    write_clips(canvas.server.folder / "input" / "planned")
    page = canvas.page
    canvas.build_planned("planned")
    assert page.locator(".vt-report").count() == 0
    canvas.run()
    page.wait_for_selector(".vt-report", timeout=120_000)
    page.wait_for_timeout(1000)
    canvas.picture("7 plan")
    seen = page.evaluate(STATE)
    assert seen["title"] == "Plan" and seen["rows"]["card"].startswith("RTX 4090") and "s a step" in seen["rows"]["time"]
    assert seen["overflow"] == 0 and seen["height"] > 200 and seen["hidden"] <= 0

    page.wait_for_timeout(2000)  # the front end keeps the graph in the browser now and then
    page.reload()
    canvas.wait_for_app()
    page.wait_for_selector(".vt-report", timeout=30_000)
    page.wait_for_timeout(500)
    assert page.evaluate(STATE) == seen
    canvas.picture("8 plan after a reload")
    assert canvas.errors == []
