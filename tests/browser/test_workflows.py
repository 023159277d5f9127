"""The shipped workflows open in the real front end, in both renderers, as they were saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.browser.canvas import Canvas

pytestmark = [pytest.mark.browser, pytest.mark.slow]
NAMES = ["Video Trainer - Demo", "Video Trainer - Wan 2.1 T2V 1.3B"]
NOTES = {"MarkdownNote", "Note"}
OPENED = """() => app.rootGraph.nodes.map((node) => ({
  id: node.id, type: node.type, known: Boolean(LiteGraph.registered_node_types[node.type]), values: node.serialize().widgets_values ?? [],
  inputs: node.inputs.filter((input) => input.link != null).length,
  names: (LiteGraph.createNode(node.type)?.inputs ?? []).map((input) => input.name),
}))"""
OVERLAPS = """() => {
  const boxes = app.rootGraph.nodes.map((node) => {
    const element = document.querySelector(`[data-node-id="${node.id}"]`);
    const height = element ? element.offsetHeight : node.size[1] + 30;
    return [node.title, node.pos[0], node.pos[1] - 30, node.size[0], height];
  });
  const meet = ([, x, y, w, h], [, a, b, c, d]) => x < a + c && a < x + w && y < b + d && b < y + h;
  return boxes.flatMap((one, i) => boxes.slice(i + 1).filter((other) => meet(one, other)).map((other) => `${one[0]} / ${other[0]}`));
}"""


def linked(node: dict[str, Any]) -> int:
    return sum(input.get("link") is not None for input in node.get("inputs", []))


@pytest.mark.parametrize("name", NAMES)
def test_opens_as_saved(canvas: Canvas, name: str) -> None:
    saved = {str(node["id"]): node for node in canvas.open_template(name)["nodes"]}
    canvas.page.wait_for_timeout(1500)
    opened = {str(node["id"]): node for node in canvas.page.evaluate(OPENED)}
    assert opened.keys() == saved.keys()
    for key, node in opened.items():
        assert node["known"], f"{node['type']} is missing"
        assert node["values"] == saved[key].get("widgets_values", []), node["type"]
        assert node["inputs"] == linked(saved[key]), node["type"]
        # Values are saved by place: an input moved or added in the node would shift them.
        names = [input["name"] for input in saved[key].get("inputs", [])]
        assert names == node["names"] or not node["type"].startswith("VideoTrainer"), node["type"]
    assert canvas.page.evaluate(OVERLAPS) == []
    assert canvas.errors == []


@pytest.mark.parametrize("name", NAMES)
def test_both_branches_draw_alike(root: Path, name: str) -> None:
    graph = json.loads((root / "workflows" / f"{name}.json").read_text(encoding="utf-8"))
    of_type = {node["type"]: node for node in graph["nodes"]}
    sampler, core = of_type["VideoTrainerSampleVideo"]["widgets_values"], of_type["KSampler"]["widgets_values"]
    prompt, negative, frames, height, width, steps, guidance, shift, seed, strength = sampler
    assert (seed, steps, guidance) == (core[0], core[2], core[3])
    assert [shift] == of_type["ModelSamplingSD3"]["widgets_values"]
    assert [width, height, frames, 1] == of_type["EmptyHunyuanLatentVideo"]["widgets_values"]
    assert strength == of_type["LoraModelLoader"]["widgets_values"][0]
    texts = {node["type"]: [] for node in graph["nodes"]}
    for node in graph["nodes"]:
        texts[node["type"]].append(node.get("widgets_values", [""])[:1])
    assert [prompt] in texts.get("VideoTrainerEncodePrompt", []) + texts.get("CLIPTextEncode", [])
    assert [negative] in texts.get("VideoTrainerEncodePrompt", []) + texts.get("CLIPTextEncode", [])


@pytest.mark.parametrize("name", NAMES)
def test_has_a_picture_notes_and_model_addresses(root: Path, name: str) -> None:
    graph = json.loads((root / "workflows" / f"{name}.json").read_text(encoding="utf-8"))
    assert (root / "workflows" / f"{name}.jpg").stat().st_size < 300_000
    assert {group["title"][0] for group in graph["groups"]} == set("123456")
    assert sum(node["type"] in NOTES for node in graph["nodes"]) >= 4
    for node in graph["nodes"]:
        if node["type"] in ("UNETLoader", "VAELoader", "CLIPLoader"):
            (model,) = node["properties"]["models"]
            assert model["name"] == node["widgets_values"][0]
            assert f"/{model['directory']}/{model['name']}" in model["url"]
