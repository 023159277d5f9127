"""ComfyUI's canvas in a browser page, as far as the tests touch it."""

from __future__ import annotations

import json
import urllib.parse
import warnings
from pathlib import Path
from typing import Any

from tests.host.comfy_server import PACK_NAME, ComfyServer

READY = "() => window.app?.extensionManager?.setting && window.app.rootGraph && window.app.canvas"
PLANNED = """({ folder, preview, scale }) => {
  app.graph.clear();
  const made = {};
  const places = [["DemoModel", 0, 0], ["VideoFolder", 0, 250], ["FrameBuckets", 0, 620], ["Plan", 460, 0]];
  if (preview) places.push(["DatasetPreview", 1040, 0]);
  for (const [name, x, y] of places) {
    made[name] = LiteGraph.createNode(`VideoTrainer${name}`);
    app.graph.add(made[name]);
    made[name].pos = [x, y];
  }
  const link = (from, to, name) => made[from].connect(0, made[to], made[to].inputs.findIndex((input) => input.name === name));
  link("VideoFolder", "FrameBuckets", "dataset");
  for (const to of preview ? ["Plan", "DatasetPreview"] : ["Plan"]) {
    link("DemoModel", to, "model");
    link("FrameBuckets", to, "dataset");
  }
  const set = (node, name, value) => (made[node].widgets.find((widget) => widget.name === name).value = value);
  set("VideoFolder", "folder", folder);
  set("FrameBuckets", "sizes", "9x32x32");
  set("Plan", "card", "RTX 4090");
  app.canvas.ds.scale = scale;
  app.canvas.ds.offset = [100, 140];
  app.canvas.setDirty(true, true);
}"""
SHOW_TRAIN = """() => {
  const node = app.rootGraph.nodes.find((node) => node.type === "VideoTrainerTrain");
  app.canvas.ds.scale = 0.8;
  app.canvas.ds.offset = [80 / 0.8 - node.pos[0], 90 / 0.8 - node.pos[1]];
  app.canvas.setDirty(true, true);
}"""
SHORTEN = """(values) => {
  const set = (type, name, value) => {
    const widget = app.rootGraph.nodes.find((node) => node.type === type).widgets.find((widget) => widget.name === name);
    widget.value = value;
  };
  for (const [type, name, value] of values) set(type, name, value);
  for (const node of app.rootGraph.nodes) if (node.type === "SaveVideo") node.mode = 2;
  app.rootGraph.nodes.find((node) => node.type === "VideoTrainerTrain").size[1] = 1000;
}"""
STATE = """() => {
  const monitor = document.querySelector(".vt-monitor");
  const canvas = monitor.querySelector("canvas");
  const pixels = canvas.width ? canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data : [];
  let drawn = 0;
  for (let i = 3; i < pixels.length; i += 4) drawn += pixels[i] > 0;
  const [step, total] = monitor.querySelector(".vt-count").textContent.match(/^([\\d,]+) \\/ ([\\d,]+)$/)?.slice(1) ?? [];
  const number = (text) => (text === undefined ? null : Number(text.replace(",", "")));
  return {
    status: monitor.dataset.status, theme: monitor.dataset.theme, phase: monitor.querySelector(".vt-phase").textContent,
    step: number(step), total: number(total), drawn, stats: [...monitor.querySelectorAll("dd")].map((value) => value.textContent),
    videos: [...monitor.querySelectorAll("video")].map((video) => ({ width: video.videoWidth, time: video.currentTime })),
    notices: [...monitor.querySelectorAll(".vt-notice")].map((notice) => notice.textContent),
    width: monitor.clientWidth, height: monitor.clientHeight,
    overflow: monitor.scrollWidth - monitor.clientWidth,
  };
}"""


class Canvas:
    """A page with ComfyUI's front end; `renderer` is "classic" or "nodes 2.0"."""

    def __init__(self, page: Any, server: ComfyServer, pictures: Path, renderer: str) -> None:
        self.page, self.server, self.pictures, self.renderer = page, server, pictures, renderer
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def open(self) -> None:
        settings = {
            "Comfy.VueNodes.Enabled": self.renderer != "classic", "Comfy.TutorialCompleted": True, "Comfy.ColorPalette": "dark",
            "Comfy.Minimap.Visible": False,
        }  # fmt: skip
        status, answer = self.server.post("/settings", settings)
        assert status == 200, answer
        self.page.goto(f"http://127.0.0.1:{self.server.port}")
        self.wait_for_app()

    def wait_for_app(self) -> None:
        self.page.wait_for_function(READY, timeout=120_000)
        self.page.wait_for_timeout(1500)  # the front end restores the last workflow after that

    def reload(self) -> None:
        self.page.reload()
        self.wait_for_app()
        self.page.wait_for_selector(".vt-monitor", timeout=30_000)
        self.show_train()

    def open_template(self, name: str) -> dict[str, Any]:
        """Opens a workflow of this pack from ComfyUI's templates, and returns its JSON."""
        status, names = self.server.get("/api/workflow_templates")
        assert status == 200 and name in names[PACK_NAME], names
        status, graph = self.server.get(f"/api/workflow_templates/{PACK_NAME}/{urllib.parse.quote(name)}.json")
        assert status == 200
        self.page.evaluate("(graph) => app.loadGraphData(graph)", graph)
        self.page.wait_for_selector(".vt-monitor", timeout=30_000)
        return graph

    def build_planned(self, folder: str, preview: bool = False, scale: float = 0.8) -> None:
        """The demo model and a folder of ComfyUI's input with Plan, and with Dataset Preview where that is asked for."""
        self.page.evaluate(PLANNED, {"folder": folder, "preview": preview, "scale": scale})

    def shorten(self, values: list[tuple[str, str, object]]) -> None:
        """Sets widgets (node type, name, value) and leaves out what comes after training."""
        self.page.evaluate(SHORTEN, values)
        self.show_train()

    def show_train(self) -> None:
        self.page.evaluate(SHOW_TRAIN)
        self.page.wait_for_timeout(500)

    def run(self) -> None:
        self.page.get_by_test_id("queue-button").click()

    def cancel(self) -> None:
        self.page.get_by_role("button", name="Cancel current run").first.click()

    def press(self, text: str) -> None:
        """Presses a button of the monitor."""
        self.page.locator(".vt-button", has_text=text).click(timeout=30_000)

    def state(self) -> dict[str, Any]:
        return self.page.evaluate(STATE)

    def until(self, true: str, limit: float = 240.0) -> dict[str, Any]:
        """Waits for a condition on `state`, written in JavaScript; returns the state."""
        try:
            self.page.wait_for_function(f"() => {{ const state = ({STATE})(); return {true}; }}", timeout=limit * 1000, polling=250)
        except Exception as error:
            raise AssertionError(f"never: {true}\n{json.dumps(self.state(), indent=1)}\n{self.server.log[-3000:]}") from error
        return self.state()

    def run_id(self) -> str:
        script = 'app.rootGraph.nodes.find((node) => node.type === "VideoTrainerTrain").properties.video_trainer_run'
        return self.page.evaluate(script)

    def events(self) -> list[dict[str, Any]]:
        """The log of the run that the node shows."""
        status, answer = self.server.get(f"/video_trainer/runs/{self.run_id()}/events")
        assert status == 200, answer
        return answer["events"]

    def picture(self, name: str) -> None:
        """A screenshot for people to look at; where software rendering cannot keep up, there is none and a warning says so."""
        try:
            self.page.screenshot(path=str(self.pictures / f"{name} - {self.renderer}.png"))
        except Exception as error:
            if type(error).__name__ != "TimeoutError":
                raise
            warnings.warn(f"no screenshot '{name}': the page did not hold still", stacklevel=2)
