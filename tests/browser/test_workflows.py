"""The shipped workflows open in the real front end, in both renderers, as they were saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.browser.canvas import Canvas

pytestmark = [pytest.mark.browser, pytest.mark.slow]
NAMES = sorted(file.stem for file in (Path(__file__).parents[2] / "workflows").glob("*.json"))
WITHOUT_CORE = {"Video Trainer - FramePack"}  # ComfyUI itself has no such model
UNPUBLISHED = {"cogvideox_5b_bf16.safetensors"}  # in ComfyUI's names
SIZES = {"EmptySD3LatentImage": ("height", "width")}  # of nodes that make something else than a video
MODELS = ("UNETLoader", "CheckpointLoaderSimple", "VAELoader", "CLIPVisionLoader", "CLIPLoader", "DualCLIPLoader", "QuadrupleCLIPLoader")
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
def test_opens_as_saved(shared_canvas: Canvas, name: str) -> None:
    canvas = shared_canvas
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


def named(graph: dict[str, Any], *types: str) -> list[dict[str, Any]]:
    """The widgets' values by name of all nodes of some types."""
    found = (node for node in graph["nodes"] if node["type"] in types)
    return [dict(node["widgets_values_named"]) for node in found]


@pytest.mark.parametrize("name", sorted({*NAMES} - WITHOUT_CORE))
def test_both_branches_draw_alike(root: Path, name: str) -> None:
    graph = json.loads((root / "workflows" / f"{name}.json").read_text(encoding="utf-8"))
    (ours,) = named(graph, "VideoTrainerSampleVideo")
    samplers = named(graph, "KSampler", "KSamplerAdvanced", "SamplerCustom")
    (guided,) = named(graph, "FluxGuidance") or [{"guidance": ours["guidance"]}]  # fed in: the sampler has none of its own then
    for sampler in samplers:
        assert sampler.get("seed", sampler.get("noise_seed")) == ours["seed"]
        assert (guided["guidance"] if sampler["cfg"] == 1 else sampler["cfg"]) == ours["guidance"]
    assert {step["steps"] for step in (*samplers, *named(graph, "LTXVScheduler")) if "steps" in step} == {ours["steps"]}
    assert all(sampling["shift"] == ours["shift"] for sampling in named(graph, "ModelSamplingSD3"))
    starts = [node for node in graph["nodes"] if node["type"].startswith(("Empty", "Wan")) and "batch_size" in node["widgets_values_named"]]
    for start in starts:
        want = {"length": ours["frames"], "height": ours["height"], "width": ours["width"]}
        sides = SIZES.get(start["type"], tuple(want))
        assert [start["widgets_values_named"][side] for side in sides] == [want[side] for side in sides]
    assert len(starts) == 1 and samplers
    assert all(lora["strength_model"] == ours["strength"] for lora in named(graph, "LoraModelLoader"))
    texts = [text["text"] for text in named(graph, "VideoTrainerEncodePrompt", "CLIPTextEncode")]
    assert ours["prompt"] in texts and {*texts} <= {ours["prompt"], ours["negative"]}


@pytest.mark.parametrize("name", NAMES)
def test_has_a_picture_notes_and_model_addresses(root: Path, name: str) -> None:
    graph = json.loads((root / "workflows" / f"{name}.json").read_text(encoding="utf-8"))
    assert (root / "workflows" / f"{name}.jpg").stat().st_size < 300_000
    assert {group["title"][0] for group in graph["groups"]} == set("12345" if name in WITHOUT_CORE else "123456")
    assert sum(node["type"] in NOTES for node in graph["nodes"]) >= 4
    for node in graph["nodes"]:
        if node["type"] in MODELS:
            files = [value for value in node["widgets_values"] if str(value).endswith(".safetensors")]
            models = node["properties"].get("models", [])
            assert files and [model["name"] for model in models] == [file for file in files if file not in UNPUBLISHED]
            assert all(model["url"].split("?")[0].endswith(f"/{model['name']}") for model in models)


@pytest.mark.parametrize("name", NAMES)
def test_trains_from_the_files_that_core_loads(root: Path, name: str) -> None:
    graph = json.loads((root / "workflows" / f"{name}.json").read_text(encoding="utf-8"))
    loaded = {value for node in named(graph, *MODELS) for value in node.values() if str(value).endswith(".safetensors")}
    for trained in named(graph, "VideoTrainerLoadModelFiles"):
        files = {value for value in trained.values() if str(value).endswith(".safetensors")}
        assert files == loaded or name in WITHOUT_CORE
