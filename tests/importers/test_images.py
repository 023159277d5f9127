"""Still images in other trainers' files: buckets of one frame, folders that take them, and what is rounded or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.data.synthetic import SPEC, grey, write_clip
from tests.data.test_sources import write
from tests.importers.test_import import kinds, line
from trainer.data.plan import shaper
from trainer.data.probe import probe
from trainer.data.sources.scan import scan
from trainer.importers import Imported, import_config
from trainer.job import DatasetSettings, TrainingJob
from trainer.source_settings import HubDataset, MetadataTable, VideoFolder, VideoList, WebDataset


def imported(folder: Path, name: str, text: str) -> tuple[Imported, DatasetSettings]:
    result = import_config([write(folder / name, text)])
    return result, TrainingJob.parse(result.job).dataset


def pipe(folder: Path, text: str) -> tuple[Imported, DatasetSettings, list[str]]:
    """A dataset TOML of diffusion-pipe with a folder, imported; and its buckets."""
    result, dataset = imported(folder, "dataset.toml", text if "[[directory]]" in text else f"{text}\n[[directory]]\npath = 'a'\n")
    return result, dataset, list(map(str, dataset.buckets))


def takes_images(dataset: DatasetSettings) -> list[bool]:
    return [source.images for source in dataset.sources if isinstance(source, VideoFolder)]


def test_diffusion_pipes_frame_bucket_1_is_a_bucket_of_one_frame(tmp_path: Path) -> None:
    result, dataset, buckets = pipe(tmp_path, "frame_buckets = [1, 33]\nresolutions = [512, 500]")
    assert buckets == ["1x512x512", "1x500x500", "33x512x512", "33x500x500"] and takes_images(dataset) == [True]
    assert line(result, "frame_buckets").why.startswith("1 is for still images, which are taken from the folders")
    _, dataset, buckets = pipe(tmp_path, "frame_buckets = 1\nresolutions = [512]\nenable_ar_bucket = true\nar_buckets = [[448, 576]]")
    assert buckets == ["1x576x448"]


def test_diffusion_pipes_one_frame_buckets_are_rounded_to_the_model(tmp_path: Path) -> None:
    write(tmp_path / "dataset.toml", "frame_buckets = [1, 34]\nresolutions = [500]\n[[directory]]\npath = 'a'\n")
    result = import_config([write(tmp_path / "train.toml", "dataset = 'dataset.toml'\n[model]\ntype = 'wan'\n")])
    frames, resolutions = line(result, "frame_buckets"), line(result, "resolutions")
    assert (frames.kind, frames.value) == ("rounded", "1 frame, 33 frames") and "34 frames -> 33 frames" in frames.why
    assert (resolutions.kind, resolutions.value) == ("rounded", "496x496")


@pytest.mark.parametrize(
    ("text", "buckets", "images", "setting", "said"),
    [
        ("resolutions = [512]", ["1x512x512"], True, "resolutions", "with 1 frame, diffusion-pipe's default"),
        ("frame_buckets = [1]\nresolutions = [512]", ["1x512x512"], True, "frame_buckets", "where diffusion-pipe leaves it out"),
        (
            "frame_buckets = [33]\nresolutions = [512]",
            ["33x512x512"],
            True,
            "frame_buckets",
            "still images in the folders are taken as well",
        ),
        ("size_buckets = [[512, 256, 1], [512, 256, 33]]", ["1x256x512", "33x256x512"], True, "size_buckets", "1 is for still images"),
        ("size_buckets = [[512, 256, 33]]", ["33x256x512"], False, "size_buckets", ""),
        ("frame_buckets = ['many']\nresolutions = [512]", [], True, "frame_buckets", "it needs frames and a size"),
        ("frame_buckets = [1]", [], True, "frame_buckets", "it needs frames and a size"),
    ],
)
def test_what_diffusion_pipe_makes_of_still_images(
    tmp_path: Path, text: str, buckets: list[str], images: bool, setting: str, said: str
) -> None:
    result, dataset, found = pipe(tmp_path, text)
    assert found == buckets and takes_images(dataset) == [images]
    assert said in line(result, setting).why and line(result, setting).kind == ("mapped" if buckets else "unsupported")


def test_diffusion_pipes_directories_of_images_and_of_clips_keep_their_sizes(tmp_path: Path) -> None:
    text = "resolutions = [512]\nframe_buckets = [1, 33]\n[[directory]]\npath = 'clips'\n[[directory]]\npath = 'stills'\n"
    result, dataset, buckets = pipe(tmp_path, text + "frame_buckets = [1]\nresolutions = [768]\n")
    assert buckets == ["1x512x512", "33x512x512", "1x768x768"] and takes_images(dataset) == [True, True]
    assert "all sources share the buckets" in line(result, "directory.1.frame_buckets").why


def test_what_diffusion_pipe_would_read_and_a_folder_does_not_is_noted(tmp_path: Path) -> None:
    text = f"frame_buckets = [33]\nresolutions = [512]\n[[directory]]\npath = '{tmp_path.as_posix()}/a'\n"
    write(tmp_path / "a/clip.txt", "one")
    assert not any("captions.json" in note for note in pipe(tmp_path, text)[0].notes)
    write(tmp_path / "a/captions.json", "{}")
    write(tmp_path / "a/0.tar", b"")
    notes = pipe(tmp_path, text)[0].notes
    assert any("captions.json" in note and "Metadata Table" in note for note in notes) and any("WebDataset" in note for note in notes)


def test_an_imported_dataset_of_clips_and_stills_plans_both(tmp_path: Path) -> None:
    write_clip(tmp_path / "a/clip.mp4", 9)
    Image.fromarray(grey(3)).save(tmp_path / "a/still.png")
    _, dataset, _ = pipe(tmp_path, f"frame_buckets = [1, 9]\nresolutions = [[64, 48]]\n[[directory]]\npath = '{tmp_path.as_posix()}/a'\n")
    shape = shaper(dataset, SPEC)[0]
    planned = {clip.name: str(shape.plan(clip, probe(clip.path)).example) for clip in scan(dataset.sources).clips}
    assert planned == {"clip.mp4": "9x48x64", "still.png": "1x48x64"}


# finetrainers ---------------------------------------------------------------------------------------------------------


def datasets(folder: Path, *rows: dict[str, Any]) -> tuple[Imported, DatasetSettings]:
    """finetrainers' dataset JSON beside a command line for Wan."""
    write(folder / "training.json", json.dumps({"datasets": rows}))
    command = "python train.py --model_name wan --training_type lora --dataset_config training.json"
    return imported(folder, "train.sh", command)


def test_finetrainers_image_buckets_are_buckets_of_one_frame(tmp_path: Path) -> None:
    (tmp_path / "stills").mkdir()
    stills = {"data_root": f"{tmp_path.as_posix()}/stills", "dataset_type": "image", "image_resolution_buckets": [[512, 500], [768, 768]]}
    clips = {"data_root": "owner/clips", "dataset_type": "video", "video_resolution_buckets": [[49, 480, 832]]}
    result, dataset = datasets(tmp_path, stills, clips)
    assert list(map(str, dataset.buckets)) == ["1x512x500", "1x768x768", "49x480x832"]
    assert dataset.sources == [VideoFolder(folder=f"{tmp_path.as_posix()}/stills", images=True), HubDataset(source="owner/clips")]
    told = line(result, "datasets.0.image_resolution_buckets")
    assert (told.kind, told.value) == ("rounded", "1x512x496, 1x768x768") and "clips of one frame" in told.why
    kind = line(result, "datasets.0.dataset_type")
    assert (kind.target, kind.value) == ("dataset.sources.0.images", True) and "videos that lie beside" in kind.why
    assert kinds(result, "datasets.1.dataset_type") == {"ignored"}


def test_finetrainers_buckets_of_the_other_kind_are_not_read(tmp_path: Path) -> None:
    both = {"image_resolution_buckets": [[512, 512]], "video_resolution_buckets": [[49, 512, 512]]}
    for kind, bucket, unread in (("image", "1x512x512", "video"), ("video", "49x512x512", "image")):
        result, dataset = datasets(tmp_path, {"data_root": "a/b", "dataset_type": kind, **both})
        assert list(map(str, dataset.buckets)) == [bucket] and dataset.sources == [HubDataset(source="a/b", images=kind == "image")]
        told = line(result, f"datasets.0.{unread}_resolution_buckets")
        assert told.kind == "ignored" and f"this dataset is of {kind}s" in told.why
    result, dataset = datasets(tmp_path, {"data_root": "a/b", "dataset_type": "image", "image_resolution_buckets": [[49, 512, 512]]})
    assert dataset.buckets == [] and kinds(result, "datasets.0.image_resolution_buckets") == {"unsupported"}


def test_finetrainers_images_in_every_layout(tmp_path: Path) -> None:
    write(tmp_path / "list/image.txt", "a.png")
    write(tmp_path / "list/captions.txt", "one")
    write(tmp_path / "tars/0.tar", b"")
    rows = [
        {"data_root": f"{tmp_path.as_posix()}/list", "dataset_type": "image", "image_resolution_buckets": [[512, 512]]},
        {"data_root": f"{tmp_path.as_posix()}/tars", "dataset_type": "image", "rename_columns": {"long": "caption"}},
        {"dataset_file": "stills.csv", "dataset_type": "image", "rename_columns": {"photo": "image"}},
    ]
    result, dataset = datasets(tmp_path, *rows)
    assert dataset.sources == [
        VideoList(folder=f"{tmp_path.as_posix()}/list", videos="image.txt"),
        WebDataset(path=f"{tmp_path.as_posix()}/tars", images=True, caption_key="long"),
        MetadataTable(file="stills.csv", video_column="photo"),
    ]
    assert line(result, "datasets.1.rename_columns.long").target == "dataset.sources.1.caption_key"


def test_finetrainers_image_buckets_of_the_command_line(tmp_path: Path) -> None:
    command = "python train.py --model_name wan --training_type lora --data_root {} --image_resolution_buckets 512x768 520x512"
    result, dataset = imported(tmp_path, "train.sh", command.format(tmp_path.as_posix()) + " --video_resolution_buckets 49x512x768")
    assert list(map(str, dataset.buckets)) == ["49x512x768", "1x512x768", "1x520x512"] and takes_images(dataset) == [True]
    told = line(result, "image_resolution_buckets")
    assert (told.kind, told.value) == ("rounded", "1x512x768, 1x528x512")
