"""What shows that a file changed to which a job points: it is the same for imported jobs as for the nodes of each source."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.data.test_archives import write_tar
from tests.data.test_sources import write
from trainer.data.sources.inspect import state
from trainer.importers import import_config
from trainer.job import AdapterSettings, DatasetSettings, SamplePrompt, SampleSettings, TrainingJob
from trainer.job_files import job_state
from trainer.source_settings import (
    CaptionJson,
    HubDataset,
    MetadataTable,
    PairedFolders,
    ParquetFolder,
    Source,
    VideoFolder,
    VideoList,
    WebDataset,
)

Place = Callable[[str], str]
SOURCES: dict[str, tuple[Callable[[Place], Source], tuple[str, ...]]] = {  # each with the files that it is made of
    "folder": (lambda at: VideoFolder(folder=at("data")), ("data/a.mp4", "data/sub/a.txt")),
    "one file": (
        lambda at: VideoFolder(folder=at("data"), subfolders=False, captions_from="one file", caption_file=at("other/all.txt")),
        ("data/a.mp4", "other/all.txt"),
    ),
    "paired": (lambda at: PairedFolders(folder=at("data"), videos=at("videos")), ("videos/sub/a.mp4", "data/captions/a.txt")),
    "list": (
        lambda at: VideoList(folder=at("data"), videos="lists/clips.txt", captions=at("other/all.txt")),
        ("data/lists/clips.txt", "other/all.txt", "data/lists/a.mp4"),
    ),
    "table": (lambda at: MetadataTable(file=at("metadata.csv")), ("metadata.csv", "videos/sub/a.mp4")),
    "caption_json": (lambda at: CaptionJson(file=at("v.json")), ("v.json", "videos/sub/a.mp4")),
    "hub": (lambda at: HubDataset(source=at("data")), ("data/a.mp4", "data/sub/a.txt")),
    "webdataset": (lambda at: WebDataset(path=at("tars")), ("tars/x.tar",)),
    "parquet": (lambda at: ParquetFolder(folder=at("parquet")), ("parquet/worker_0/a.parquet",)),
}


@pytest.fixture
def at(tmp_path: Path) -> Place:
    """A path below the test's folder, which holds every file named above."""
    for file in sorted({file for _, files in SOURCES.values() for file in files}):
        write(tmp_path / file, b"x")
    write(tmp_path / "data/lists/clips.txt", "a.mp4")
    write(tmp_path / "other/all.txt", "a caption")
    write(tmp_path / "metadata.csv", "file_name,text\nvideos/sub/a.mp4,one\n")
    write(tmp_path / "v.json", json.dumps([{"path": "sub/a.mp4", "cap": "one"}]))
    write_tar(tmp_path / "tars/x.tar", {"a.mp4": b"x", "a.txt": b"one"})
    return lambda name: str(tmp_path / name)


def touched(path: str) -> None:
    """The same bytes, written again a second later."""
    stat = Path(path).stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 10**9))


@pytest.mark.parametrize("kind", SOURCES)
def test_each_file_of_a_source_shows_in_its_state_and_in_the_jobs(at: Place, kind: str) -> None:
    source = SOURCES[kind][0](at)
    job = TrainingJob(dataset=DatasetSettings(sources=[source]))
    for file in SOURCES[kind][1]:
        before = state(source), job_state(job)
        assert at(file) in {path for path, _, _ in before[0]}
        touched(at(file))
        assert state(source) != before[0] and job_state(job) != before[1], file


def test_files_beside_the_sources_show_too(at: Place) -> None:
    write(Path(at("lora.safetensors")), b"x")
    write(Path(at("first.png")), b"x")
    job = TrainingJob(
        adapter=AdapterSettings(continue_from=at("lora.safetensors")),
        samples=SampleSettings(prompts=[SamplePrompt(prompt="a", image=at("first.png")), SamplePrompt(prompt="b")]),
    )
    for file in ("lora.safetensors", "first.png"):
        before = job_state(job)
        touched(at(file))
        assert job_state(job) != before
    assert job_state(job) == job_state(job)


def test_an_edited_sidecar_of_an_imported_job_shows(at: Place) -> None:
    config = write(Path(at("dataset.toml")), f"frame_buckets = [1, 33]\nresolutions = [512]\n[[directory]]\npath = '{at('data/sub')}'\n")
    job = TrainingJob.parse(import_config([config]).job)
    before = job_state(job)
    write(Path(at("data/sub/a.txt")), "longer")
    assert job_state(job) != before
