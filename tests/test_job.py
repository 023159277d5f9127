"""Job files: older versions, mistakes, paths, and how datasets are combined."""

import json
from pathlib import Path

import pytest

from trainer.adapters.export import _triggers, _without_paths
from trainer.dataset_settings import combined
from trainer.errors import Problem, UserError
from trainer.job import (
    Bucket,
    CaptionEdit,
    CaptionSettings,
    DatasetSettings,
    SamplePrompt,
    SampleSettings,
    TrainingJob,
    VideoFolder,
)
from trainer.placed_settings import sections
from trainer.source_settings import SOURCES, HubDataset, MetadataTable

FIRST = {
    "version": 1,
    "dataset": {"folders": [{"folder": "clips", "subfolders": False, "caption": "a", "repeats": 2}, {"folder": "more"}], "fps": 8.0},
    "captions": {"dropout": 0.1, "prefix": "zorp"},
}


@pytest.mark.parametrize("version", [{}, {"version": 1}])
def test_job_of_version_1_loads(tmp_path: Path, version: dict) -> None:
    data = {name: part for name, part in FIRST.items() if name != "version"}
    (tmp_path / "job.json").write_text(json.dumps({**data, **version}), encoding="utf-8")
    job = TrainingJob.load(tmp_path / "job.json")
    assert job.dataset.sources == [VideoFolder(folder="clips", subfolders=False, caption="a", repeats=2), VideoFolder(folder="more")]
    assert (job.version, job.dataset.fps, job.captions.prefix) == (3, 8.0, "zorp")
    assert TrainingJob.parse(job.model_dump(mode="json")) == job


def test_mistakes_in_an_old_job_are_still_told() -> None:
    with pytest.raises(UserError) as caught:
        TrainingJob.parse({"version": 1, "dataset": {"folders": [{"folde": "x"}, 3]}})
    assert [problem.where for problem in caught.value.problems] == ["dataset.sources.0.folde", "dataset.sources.1"]
    with pytest.raises(UserError, match="folders: is not a setting"):
        TrainingJob.parse({"version": 2, "dataset": {"folders": []}})


@pytest.mark.parametrize("version", [0, 4, "1", None, [1]])
def test_unknown_version_is_told(version: object) -> None:
    with pytest.raises(UserError, match="version"):
        TrainingJob.parse({"version": version})


def test_mistakes_in_a_source_name_its_place_and_setting() -> None:
    sources = [{"kind": "table", "weight": 0}, {"kind": "tables"}, {"file": "x"}, {"kind": "hub", "splitt": "x"}]
    with pytest.raises(UserError) as caught:
        TrainingJob.parse({"dataset": {"sources": sources}})
    assert [problem.where.removeprefix("dataset.sources.") for problem in caught.value.problems] == ["0.weight", "1", "2", "3.splitt"]
    assert "'split'" in str(caught.value) and "'caption_json'" in str(caught.value)


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ({"samples": {"prompts": [{"frames": 3}]}}, "samples.prompts.0.frames: is not a setting. It stands elsewhere: "),
        ({"schedule": {"zzz": "low"}}, "schedule.zzz: is not a setting. Known names: accumulation, "),
        ({"schedule": {"expert": "low"}}, "schedule.expert: is not a setting. It stands elsewhere: model.expert."),
        ({"memory": {"compile": "on"}}, "memory.compile: is not a setting. It stands elsewhere: compute.compile."),
        ({"memory": {"compille": "on"}}, "memory.compille: is not a setting. Did you mean 'compute.compile'?"),
        ({"compile": "on"}, "compile: is not a setting. It stands elsewhere: compute.compile."),
        ({"memory": {"compute": {}}}, "memory.compute: is not a setting. It stands elsewhere: compute."),
        ({"adapter": {"seed": 1}}, "adapter.seed: is not a setting. It stands elsewhere: schedule.seed or samples.prompts[].seed."),
        ({"dataset": {"windows": {"strid": 1}}}, "dataset.windows.strid: is not a setting. Did you mean 'stride'?"),
        ({"dataset": {"sources": [{"kind": "table", "stride": 1}]}}, "dataset.sources.0.stride: is not a setting. It stands elsewhere: "),
        ({"dataset": {"sources": [{"kind": "table", "zz": 1}]}}, "dataset.sources.0.zz: is not a setting. Known names: caption, caption_c"),
        (
            {"dataset": {"sources": [{"kind": "table", "folder": "x"}]}},
            "dataset.sources.0.folder: is not a setting. It stands elsewhere: dataset.sources[].folder of kind folder or paired or list or "
            "parquet.",
        ),
        (
            {"dataset": {"sources": [{"kind": "parquet", "caption": "x"}]}},
            "dataset.sources.0.caption: is not a setting. It stands elsewhere: dataset.sources[].caption of kind folder or paired or ",
        ),
        (
            {"dataset": {"sources": [{"kind": "list", "splitt": "x"}]}},
            "dataset.sources.0.splitt: is not a setting. Did you mean 'dataset.sources[].split of kind hub'?",
        ),
        ({"adapter": {"repeats": 2}}, "adapter.repeats: is not a setting. It stands elsewhere: dataset.sources[].repeats."),
        ({"schedule.steps": 5}, 'schedule.steps: is not a setting. Parts stand inside each other: write {"schedule": {"steps": …}}.'),
        ({"schedule.stepz": 5}, 'schedule.stepz: is not a setting. Did you mean {"schedule": {"steps": …}}?'),
        ({"dataset.windows": {}}, 'dataset.windows: is not a setting. Parts stand inside each other: write {"dataset": {"windows": …}}.'),
        (
            {"samples.prompts.0.seed": 5},
            'samples.prompts.0.seed: is not a setting. Parts stand inside each other: write {"samples": {"prompts": [{"seed": …}]}}.',
        ),
        (
            {"dataset": {"windows.size": 3}},
            'dataset.windows.size: is not a setting. Parts stand inside each other: write {"windows": {"size": …}}.',
        ),
        ({"adapter": {"schedule.steps": 5}}, "adapter.schedule.steps: is not a setting. It stands elsewhere: schedule.steps."),
        ({"training.compile": "on"}, "training.compile: is not a setting. It stands elsewhere: compute.compile."),
        ({"schedule": {"stepz": 3}}, "schedule.stepz: is not a setting. Did you mean 'steps'?"),
        ({"dataset": {"sources": [{"kind": "folder", "foldr": "x"}]}}, "dataset.sources.0.foldr: is not a setting. Did you mean 'folder'?"),
        ({"model": "a.safetensors"}, "model: 'a.safetensors' is not accepted. Give its settings by name: expert, "),
        ({"samples": {"prompts": [{"size": "9x32"}]}}, "samples.prompts.0.size: '9x32' is not accepted: '9x32' is not a size. Write"),
    ],
)
def test_mistakes_are_told_by_what_the_part_has(job: dict, told: str) -> None:
    with pytest.raises(UserError) as error:
        TrainingJob.parse(job)
    assert str(error.value).startswith(told) and ".." not in str(error.value)


@pytest.mark.parametrize("share", [-0.5, -0.01, -2, 1.5])
def test_an_offloaded_share_is_a_share_or_left_open(share: float) -> None:
    """Negative ones were all taken as open."""
    with pytest.raises(UserError, match=r"memory\.layer_offload_fraction: .* is not accepted"):
        TrainingJob.parse({"memory": {"layer_offload_fraction": share}})
    for right in (-1, 0, 0.5, 1):
        assert TrainingJob.parse({"memory": {"layer_offload_fraction": right}}).memory.layer_offload_fraction == right
    assert TrainingJob().overridden(["memory.layer_offload_fraction=auto"]) == TrainingJob()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("share", [-0.5, -0.01, "-0.95"])
def test_an_older_jobs_negative_share_is_what_it_was(version: int, share: object) -> None:
    """They were refused, though they had meant auto; what was never accepted still is not."""
    old = {"version": version, "memory": {"layer_offload_fraction": share}}
    assert TrainingJob.parse(old).memory.layer_offload_fraction == -1
    for wrong in (-2, 1.5, "much", None):
        with pytest.raises(UserError, match=r"memory\.layer_offload_fraction: .* is not accepted"):
            TrainingJob.parse({"version": version, "memory": {"layer_offload_fraction": wrong}})


@pytest.mark.parametrize("keep", ["yes", 1, None, []])
def test_a_switch_of_version_2_that_is_none_is_told(keep: object) -> None:
    with pytest.raises(UserError, match=r"memory\.keep_quantized: .* is not accepted.*version 2"):
        TrainingJob.parse({"version": 2, "memory": {"keep_quantized": keep}})
    for switch, weights in ((True, "auto"), (False, "unquantized")):
        assert TrainingJob.parse({"version": 2, "memory": {"keep_quantized": switch}}).memory.weights == weights


def test_the_size_of_a_sample_may_be_written_as_text() -> None:
    job = TrainingJob.parse({"samples": {"prompts": [{"size": "9x32x48"}]}})
    assert job.samples.prompts[0].size == Bucket(frames=9, height=32, width=48)


def test_the_same_problem_is_told_once() -> None:
    assert str(UserError([Problem("a", "is b."), Problem("a", "is b."), Problem("c", "is d.")])) == "a: is b.\nc: is d."


def test_paths_of_every_source_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clips").mkdir()
    sources = [VideoFolder(folder="clips"), MetadataTable(file="clips"), HubDataset(source="owner/name"), HubDataset(source="clips")]
    job = TrainingJob(dataset=DatasetSettings(sources=sources)).with_absolute_paths()
    here = str(tmp_path / "clips")
    assert [source.location for source in job.dataset.sources] == [here, here, "owner/name", here]
    samples = SampleSettings(prompts=[SamplePrompt(image="clips", last_image="nowhere.png")])
    prompt = TrainingJob(samples=samples).with_absolute_paths().samples.prompts[0]
    assert (prompt.image, prompt.last_image) == (here, "nowhere.png")


def test_every_setting_is_labelled_and_explained() -> None:
    parts = {section.part for section in sections(TrainingJob)}
    assert HubDataset in parts and CaptionEdit in parts
    for part in parts:
        if part is not TrainingJob:
            assert not [name for name, field in part.model_fields.items() if name != "kind" and not (field.title and field.description)], (
                part
            )


def test_combined_datasets_keep_all_sources_and_what_only_one_sets() -> None:
    one = DatasetSettings(sources=[VideoFolder(folder="a")], fps=8)
    two = DatasetSettings(sources=[VideoFolder(folder="b", weight=2)], buckets=[Bucket(frames=9)])
    both = combined([one, two.with_caption_edit(CaptionEdit(prefix="zorp"))])
    assert [source.location for source in both.sources] == ["a", "b"] and both.fps == 8 and both.buckets == two.buckets
    assert [len(source.caption_edits) for source in both.sources] == [0, 1]
    with pytest.raises(UserError, match=r"dataset\.fps"):
        combined([one, DatasetSettings(fps=12)])


def test_settings_published_in_lora_files_name_no_folder() -> None:
    sources = [{"kind": kind, part.LOCATION: "/secret/last"} for kind, part in SOURCES.items()]
    sources += [
        {"kind": "paired", "folder": "x", "videos": "/secret/v", "captions": "C:\\secret\\c"},
        {"kind": "list", "captions": "/secret/c"},
        {"kind": "parquet", "encoder": "/secret/e"},
    ]
    job = TrainingJob.parse({"dataset": {"sources": sources}})
    published = json.dumps(_without_paths(job.model_dump(mode="json")))
    assert "secret" not in published and published.count('"last"') == len(SOURCES)


def test_every_trigger_is_published_once() -> None:
    edits = [CaptionEdit(prefix="zorp"), CaptionEdit(suffix="x"), CaptionEdit(prefix="blik")]
    dataset = DatasetSettings(sources=[VideoFolder(caption_edits=edits)])
    assert _triggers(TrainingJob(dataset=dataset, captions=CaptionSettings(prefix="zorp"))) == ["zorp", "blik"]
