"""OneTrainer's concepts: where their captions come from, which are trained on and how often, and what of them cannot be held."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.importers.test_import import kinds, line
from trainer.importers import Imported, import_config
from trainer.job import CaptionEdit, DatasetSettings, TrainingJob
from trainer.source_settings import HubDataset, PairedFolders, VideoFolder


def imported(folder: Path, *concepts: dict[str, Any], **settings: Any) -> tuple[Imported, DatasetSettings]:
    """A configuration of these concepts, imported, and the dataset of its job."""
    file = folder / "config.json"
    file.write_text(json.dumps({"training_method": "LORA", "concepts": concepts, **settings}), encoding="utf-8")
    result = import_config([file])
    assert all(line.why for line in result.lines if line.kind != "mapped")
    return result, TrainingJob.parse(result.job).dataset


def concept(**settings: Any) -> dict[str, Any]:
    return {"path": "/data/clips", "include_subdirectories": True, **settings}


@pytest.mark.parametrize(
    ("source", "captions_from", "file"),
    [("sample", "sidecar lines", ""), ("concept", "one file", "/data/prompts.txt"), ("filename", "file name", "")],
)
def test_captions_come_from_where_the_concept_says(tmp_path: Path, source: str, captions_from: str, file: str) -> None:
    result, dataset = imported(tmp_path, concept(text={"prompt_source": source, "prompt_path": "/data/prompts.txt"}))
    assert dataset.sources == [VideoFolder(folder="/data/clips", images=True, captions_from=captions_from, caption_file=file)]
    told = line(result, "concepts.0.text.prompt_source")
    assert (told.kind, told.target, told.value) == ("mapped", "dataset.sources.0.captions_from", captions_from)
    path = line(result, "concepts.0.text.prompt_path")
    assert path.target == "dataset.sources.0.caption_file" if file else path.why == "prompt_source is not 'concept'"


def test_each_concept_has_its_own_captions_and_without_a_setting_they_are_lines_of_sidecars(tmp_path: Path) -> None:
    rows = (
        concept(),
        concept(path="/data/b", text={"prompt_source": "concept", "prompt_path": "/data/b.txt"}),
        concept(path="/data/c", text={"prompt_source": "brand new", "prompt_path": ""}),
    )
    result, dataset = imported(tmp_path, *rows)
    found = [source for source in dataset.sources if isinstance(source, VideoFolder)]
    assert [(s.captions_from, s.caption_file) for s in found] == [("sidecar lines", ""), ("one file", "/data/b.txt"), ("sidecar lines", "")]
    assert line(result, "concepts.2.text.prompt_source").why == "captions come from: sample, concept, filename"


def test_captions_of_a_hub_dataset_are_its_own(tmp_path: Path) -> None:
    result, dataset = imported(
        tmp_path,
        concept(path="owner/clips", text={"prompt_source": "concept", "prompt_path": "/data/prompts.txt"}),
        concept(path="owner/more", text={"prompt_source": "sample"}),
    )
    assert dataset.sources == [HubDataset(source="owner/clips", images=True), HubDataset(source="owner/more", images=True)]
    assert kinds(result, "concepts.0.text.prompt_source") == {"unsupported"} and kinds(result, "concepts.1.text.prompt_source") == {
        "ignored"
    }


def test_videos_beside_captions_are_paired_unless_captions_come_from_elsewhere(tmp_path: Path) -> None:
    for name in ("set/videos", "set/captions"):
        (tmp_path / name).mkdir(parents=True)
    place = f"{tmp_path.as_posix()}/set"
    result, dataset = imported(tmp_path, concept(path=place, repeats=2.0), concept(path=place, text={"prompt_source": "filename"}))
    assert dataset.sources == [
        PairedFolders(folder=place, repeats=2, images=True),
        VideoFolder(folder=place, images=True, captions_from="file name"),
    ]
    assert kinds(result, "concepts.0.include_subdirectories") == {"ignored"}


def test_tags_are_shuffled_as_often_as_there_are_text_variations(tmp_path: Path) -> None:
    text = {"enable_tag_shuffling": True, "tag_delimiter": ",", "tag_dropout_enable": True, "tag_dropout_mode": "FULL"}
    result, dataset = imported(
        tmp_path,
        concept(text=text, text_variations=4),
        concept(path="/data/b", text={**text, "keep_tags_count": 3, "tag_delimiter": ";"}),
        concept(path="/data/c", text={"enable_tag_shuffling": False, "tag_delimiter": ";", "keep_tags_count": 2}, text_variations=3),
    )
    assert [source.caption_edits for source in dataset.clip_sources] == [
        [CaptionEdit(shuffle_tags=True, keep_tags=1, variants=4)],
        [CaptionEdit(shuffle_tags=True, keep_tags=3)],
        [],
    ]
    assert line(result, "concepts.1.text.tag_delimiter").why == "tags are parted by commas"
    assert kinds(result, "concepts.0.text.tag_dropout_enable") == {"unsupported"}
    assert kinds(result, "concepts.2.text.tag_delimiter", "concepts.2.text_variations", "concepts.0.text.tag_dropout_mode") == {"ignored"}


def test_balancing_is_repeats_rounded_to_whole_ones(tmp_path: Path) -> None:
    counts = [
        concept(balancing=3.0, balancing_strategy="REPEATS"),
        concept(path="/data/b", balancing=2.5),
        concept(path="/data/c", balancing=0.25),
        concept(path="/data/d", balancing=120.0, balancing_strategy="SAMPLES"),
        concept(path="/data/e", repeats=2.0),
    ]
    result, dataset = imported(tmp_path, *counts)
    assert [source.repeats for source in dataset.sources] == [3, 3, 1, 1, 2]
    assert [line(result, f"concepts.{n}.balancing").kind for n in range(4)] == ["mapped", "rounded", "rounded", "unsupported"]
    assert line(result, "concepts.1.balancing").why == "repeats are whole and at least 1: 2.5 -> 3"
    assert line(result, "concepts.1.balancing").target == "dataset.sources.1.repeats"
    assert kinds(result, "concepts.3.balancing_strategy") == {"unsupported"} and kinds(result, "concepts.4.repeats") == {"mapped"}


@pytest.mark.parametrize("kept", [{"type": "VALIDATION"}, {"type": "PRIOR_PREDICTION"}, {"validation_concept": True}])
def test_concepts_that_are_not_trained_on_are_left_out(tmp_path: Path, kept: dict[str, Any]) -> None:
    result, dataset = imported(tmp_path, concept(path="/data/out", **kept), concept(type="STANDARD", validation_concept=False))
    assert [source.location for source in dataset.sources] == ["/data/clips"]
    (name,) = kept
    assert line(result, f"concepts.0.{name}").kind == "unsupported" and "not trained on" in line(result, f"concepts.0.{name}").why
    assert line(result, "concepts.0.path").why == "this concept is not trained on"
    assert kinds(result, "concepts.1.type", "concepts.1.validation_concept") == {"ignored"}


@pytest.mark.parametrize("masks", ["masked_training", "custom_conditioning_image"])
def test_still_images_are_taken_unless_masks_lie_among_them(tmp_path: Path, masks: str) -> None:
    for on in (False, True):
        result, dataset = imported(tmp_path, concept(), frames="25", resolution="512", **{masks: on})
        assert dataset.sources == [VideoFolder(folder="/data/clips", images=not on, captions_from="sidecar lines")]
        assert any("masks or control images" in note for note in result.notes) == on


def test_crop_jitter_is_a_random_crop_of_the_whole_dataset(tmp_path: Path) -> None:
    image = {"enable_crop_jitter": True, "enable_resolution_override": True, "resolution_override": "256"}
    result, dataset = imported(tmp_path, concept(image=image, image_variations=3), concept(path="/b", image={"enable_crop_jitter": False}))
    assert (dataset.crop_position, dataset.variants) == ("random", 3)
    assert line(result, "concepts.1.image.enable_crop_jitter").why == "one value serves all here: dataset.crop_position is random"
    assert "dataset.buckets" in line(result, "concepts.0.image.enable_resolution_override").why


def test_each_setting_of_a_concept_has_the_line_that_is_its_own(tmp_path: Path) -> None:
    image = {
        "enable_random_rotate": False,
        "random_rotate_max_angle": 5.0,
        "random_hue_max_strength": 0.5,
        "enable_random_mask_rotate_crop": True,
    }
    result, _ = imported(tmp_path, concept(image=image, text={"caps_randomize_probability": 0.5}), {"name": "nowhere", "path": ""})
    assert kinds(result, "concepts.0.image.random_rotate_max_angle", "concepts.0.image.random_hue_max_strength") == {"ignored"}
    assert line(result, "concepts.0.image.random_hue_max_strength").why == "it belongs to an augmentation of images"
    assert line(result, "concepts.0.image.enable_random_mask_rotate_crop").why == "masks are not supported yet"
    assert line(result, "concepts.0.text.caps_randomize_probability").why == "it belongs to an augmentation of captions"
    assert line(result, "concepts.1.name").why == line(result, "concepts.1.path").why == "this concept has no path"
