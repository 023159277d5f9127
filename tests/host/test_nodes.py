"""What ComfyUI lists: every node, described, and cheap to load."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trainer.job  # noqa: F401 (its classes are looked at)
from tests.host.comfy_server import PACK_NAME, ComfyServer
from trainer.settings import Settings

pytestmark = pytest.mark.host

NODES = {
    "VideoTrainerDemoModel": "1 Model",
    "VideoTrainerLoadModel": "1 Model",
    "VideoTrainerLoadModelFiles": "1 Model",
    "VideoTrainerDemoClips": "2 Dataset",
    "VideoTrainerVideoFolder": "2 Dataset",
    "VideoTrainerPairedFolders": "2 Dataset",
    "VideoTrainerVideoList": "2 Dataset",
    "VideoTrainerMetadataTable": "2 Dataset",
    "VideoTrainerCaptionJson": "2 Dataset",
    "VideoTrainerHubDataset": "2 Dataset",
    "VideoTrainerWebDataset": "2 Dataset",
    "VideoTrainerLoadParquet": "2 Dataset",
    "VideoTrainerSaveParquet": "2 Dataset",
    "VideoTrainerImportConfig": "3 Method",
    "VideoTrainerCombineDatasets": "2 Dataset",
    "VideoTrainerCaptionEdit": "2 Dataset",
    "VideoTrainerCaptionClips": "2 Dataset",
    "VideoTrainerClipsToImages": "2 Dataset",
    "VideoTrainerFrameBuckets": "2 Dataset",
    "VideoTrainerFrameSampling": "2 Dataset",
    "VideoTrainerFramePackWindows": "2 Dataset",
    "VideoTrainerDatasetPreview": "2 Dataset",
    "VideoTrainerPruneCache": "2 Dataset",
    "VideoTrainerGoal": "3 Method",
    "VideoTrainerLoRASettings": "3 Method",
    "VideoTrainerOptimizer": "3 Method",
    "VideoTrainerSamplePrompts": "3 Method",
    "VideoTrainerPlan": "4 Train",
    "VideoTrainerTrain": "4 Train",
    "VideoTrainerSampleVideo": "5 Use",
    "VideoTrainerEncodePrompt": "5 Use",
    "VideoTrainerConvertLoRA": "5 Use",
}
WIDGETS = {"INT", "FLOAT", "STRING", "BOOLEAN", "COMBO"}
MOST_UNFOLDED = 8
LONGEST_START = 0.5  # seconds; 0.1 on an idle machine, where 0.3 is the aim
HEAVY = {"diffusers", "peft", "accelerate"}


@pytest.fixture(scope="module")
def listed(server: ComfyServer) -> dict[str, Any]:
    everything = server.get("/object_info")[1]
    return {name: about for name, about in everything.items() if name.startswith("VideoTrainer")}


def inputs(about: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for kind in ("required", "optional"):
        for name, (type, options) in about["input"].get(kind, {}).items():
            yield name, type, options


def test_every_node_is_listed_in_its_category(listed: dict[str, Any]) -> None:
    assert {name: about["category"] for name, about in listed.items()} == {name: f"Video Trainer/{part}" for name, part in NODES.items()}


@pytest.mark.parametrize("node", NODES)
def test_everything_is_described(listed: dict[str, Any], node: str) -> None:
    about = listed[node]
    assert about["description"] and about["display_name"] != node
    assert [name for name, _, options in inputs(about) if not options.get("tooltip")] == []
    assert len(about["output_tooltips"]) == len(about["output"]) and all(about["output_tooltips"])


@pytest.mark.parametrize("node", NODES)
def test_few_widgets_are_unfolded(listed: dict[str, Any], node: str) -> None:
    shown = [name for name, type, options in inputs(listed[node]) if type in WIDGETS and not options.get("advanced")]
    assert len(shown) <= MOST_UNFOLDED, shown


def values_of(type: str, options: dict[str, Any]) -> Iterator[Any]:
    """The default of a widget, all of its choices, and of numbers the ends and what some presses of its arrows lead to from there."""
    yield options["default"]
    yield from options["options"] if type == "COMBO" else ()
    if type in ("INT", "FLOAT"):
        for start, way in ((options["min"], 1), (options["max"], -1), (options["default"], 1), (options["default"], -1)):
            values = (start + way * presses * options["step"] for presses in range(25))
            yield from (value for value in values if options["min"] <= value <= options["max"])


def settings_classes(part: type[Settings] = Settings) -> Iterator[type[Settings]]:
    for kind in part.__subclasses__():
        yield kind
        yield from settings_classes(kind)


def test_no_widget_offers_what_its_setting_refuses(listed: dict[str, Any]) -> None:
    """Layer offload offered -0.95 to -0.05, and the learning rate 0."""
    checked = set()
    fields = [(kind, name, field) for kind in settings_classes() for name, field in kind.model_fields.items() if field.description]
    for node, about in listed.items():
        for name, type, options in inputs(about):
            for kind, own, field in fields:
                if type not in ("INT", "FLOAT", "COMBO") or not name.endswith(own) or not options["tooltip"].startswith(field.description):
                    continue
                if own == "fps":  # 0.001 to 0.999 are refused, and -1 and 0 say something
                    continue
                for value in values_of(type, options):
                    kind.model_validate({own: value})
                checked.add(f"{node}.{name}")
    assert len(checked) > 60 and {"VideoTrainerTrain.layer_offload_fraction", "VideoTrainerPlan.layer_offload_fraction"} <= checked


def test_a_share_is_offered_in_steps_or_left_open(listed: dict[str, Any]) -> None:
    for node in ("VideoTrainerTrain", "VideoTrainerPlan"):
        type, options = listed[node]["input"]["optional"]["layer_offload_fraction"]
        assert (type, options["default"], options["options"][:3], options["options"][-1]) == ("COMBO", "auto", ["auto", "0", "0.1"], "1")


def test_seeds_stay_as_they_are(listed: dict[str, Any]) -> None:
    seeds = [options for about in listed.values() for name, _, options in inputs(about) if name == "seed"]
    assert seeds and all(options["control_after_generate"] is False for options in seeds)


def test_only_model_and_dataset_are_required_for_training(listed: dict[str, Any]) -> None:
    assert list(listed["VideoTrainerTrain"]["input"]["required"]) == ["model", "dataset"]


@pytest.mark.parametrize("node", NODES)
def test_help_is_served(server: ComfyServer, root: Path, node: str) -> None:
    status, text = server.get(f"/extensions/{PACK_NAME}/docs/{node}.md")
    assert status == 200 and text == (root / f"web/docs/{node}.md").read_bytes()


def test_widgets_stand_where_saved_workflows_have_them(listed: dict[str, Any], root: Path) -> None:
    """The front end fills widgets in their order: new ones may only follow those a workflow was saved with."""
    for file in (root / "workflows").glob("*.json"):
        for node in json.loads(file.read_text(encoding="utf-8"))["nodes"]:
            if node["type"] in listed:
                saved = [entry["name"] for entry in node["inputs"] if "widget" in entry]
                assert [name for name, type, _ in inputs(listed[node["type"]]) if type in WIDGETS][: len(saved)] == saved, node["type"]


def test_help_names_every_input(listed: dict[str, Any], root: Path) -> None:
    missing = []
    for node, about in listed.items():
        text = (root / f"web/docs/{node}.md").read_text(encoding="utf-8")
        missing += [f"{node}: {options['display_name']}" for _, _, options in inputs(about) if f"**{options['display_name']}**" not in text]
    assert missing == []


def test_loading_is_quick_and_imports_nothing_heavy(server: ComfyServer) -> None:
    found = re.search(rf"([\d.]+) seconds( \(IMPORT FAILED\))?: \S+{re.escape(PACK_NAME)}", server.log)
    assert found is not None and not found[2]
    assert float(found[1]) <= LONGEST_START
    ours = [name for name in server.modules if ".trainer.job" in name]
    assert ours, "the pack is loaded"
    assert HEAVY.isdisjoint(server.modules)
