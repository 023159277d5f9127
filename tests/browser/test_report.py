"""What a node says when it is done, on the real canvas: the plan of a training, also after a reload of the page."""

from __future__ import annotations

import pytest

from tests.browser.canvas import Canvas
from tests.host.conftest import write_clips

pytestmark = [pytest.mark.browser, pytest.mark.slow]

BUILD = """() => {
  app.graph.clear();
  const made = {};
  for (const [name, x, y] of [["DemoModel", 0, 0], ["VideoFolder", 0, 250], ["FrameBuckets", 0, 620], ["Plan", 460, 0]]) {
    made[name] = LiteGraph.createNode(`VideoTrainer${name}`);
    app.graph.add(made[name]);
    made[name].pos = [x, y];
  }
  const link = (from, to, name) => made[from].connect(0, made[to], made[to].inputs.findIndex((input) => input.name === name));
  link("DemoModel", "Plan", "model");
  link("VideoFolder", "FrameBuckets", "dataset");
  link("FrameBuckets", "Plan", "dataset");
  const set = (node, name, value) => (made[node].widgets.find((widget) => widget.name === name).value = value);
  set("VideoFolder", "folder", "planned");
  set("FrameBuckets", "sizes", "9x32x32");
  set("Plan", "card", "RTX 4090");
  app.canvas.ds.scale = 0.8;
  app.canvas.ds.offset = [100, 140];
  app.canvas.setDirty(true, true);
}"""
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
    page.evaluate(BUILD)
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
