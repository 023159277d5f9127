"""The command line refuses before it works, and its small commands do what they say."""

import json

import pytest

from tests.data.synthetic import write_clip
from tests.tiny.wan import write_tiny_wan
from trainer.__main__ import main
from trainer.console import Console
from trainer.events import Sample
from trainer.runfolder import RunFolder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_wan(tmp_path_factory.mktemp("tiny"))


@pytest.mark.parametrize("name", ["", "x" * 250 + ".mp4", "file/sample.mp4", "sample\0.mp4"])
def test_a_place_that_cannot_be_written_is_named_before_anything_is_drawn(model, tmp_path, capsys, name):
    (tmp_path / "file").write_text("not a folder")
    assert main(["sample", "a clip", "--model", str(model), "--to", str(tmp_path / name)]) == 1
    assert "error: --to" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--shift=-1", "--strength=nan", "--guidance=inf", "--seed=-1", "--steps=0"])
def test_numbers_out_of_range_are_refused(model, capsys, option):
    with pytest.raises(SystemExit):
        main(["sample", "a clip", "--model", str(model), option])
    assert option.split("=")[0] in capsys.readouterr().err


@pytest.mark.parametrize("setting", ["model.source=" + "a/" * 3000, "schedule.steps=" + "9" * 5000, "adapter.continue_from=a\0b"])
def test_odd_settings_end_in_an_error_that_names_them(model, tmp_path, capsys, setting):
    (tmp_path / "job.json").write_text(
        '{"model": {"source": "' + str(model).replace("\\", "/") + '"}, "dataset": {"sources": [{"kind": "folder", "folder": "clips"}]}}'
    )
    assert main(["train", str(tmp_path / "job.json"), "--set", setting, "--output", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_a_model_that_is_nowhere_is_told_with_the_folders_that_were_searched(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("owner/no-such-model", "no such model"):
        assert main(["sample", "a clip", "--model", name, "--models", str(tmp_path / "mine"), "--output", str(tmp_path / "out")]) == 1
        told = capsys.readouterr().err
        assert str(tmp_path / "mine") in told and str(tmp_path / "out/models") in told
        assert "--models" in told and "models/diffusers" not in told


@pytest.mark.parametrize("name", ["", "run", "job.json", "nothing"])
def test_resume_of_what_is_no_run_says_what_is(tmp_path, capsys, name):
    RunFolder.create(tmp_path / "run", "")  # moved out of its place
    (tmp_path / "job.json").write_text("{}")
    assert main(["resume", str(tmp_path / name), "--output", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert f"error: {tmp_path / name}: is not the folder of a run" in told and str(tmp_path / "video_trainer/my-run") in told


def test_the_terminal_names_a_sample_where_it_lies(tmp_path, capsys):
    Console(tmp_path).emit(Sample(5, 0, "a clip", "samples/step-000005/00.mp4", run="my-run-0123abcd"))
    assert f"sample at step 5: {tmp_path / 'my-run/samples/step-000005/00.mp4'}" in capsys.readouterr().err


@pytest.fixture
def job(model, tmp_path):
    """A job file of three clips, one of which is too short, and six examples to a step."""
    for number, frames in enumerate((9, 13, 2)):
        write_clip(tmp_path / f"clips/{number}.mp4", frames)
    (tmp_path / "job.json").write_text(
        json.dumps({
            "model": {"source": str(model)},
            "dataset": {
                "sources": [{"kind": "folder", "folder": str(tmp_path / "clips"), "repeats": 5}],
                "buckets": [{"frames": 9, "height": 32, "width": 48}], "windows": {"size": 5},
            },
            "schedule": {"batch_size": 3, "accumulation": 2},
        }),
        encoding="utf-8",
    )  # fmt: skip
    return tmp_path / "job.json"


def test_clips_that_are_all_left_out_are_told_once_each(job, tmp_path, capsys):
    assert main(["train", str(job), "--set", "dataset.windows.size=81", "--set", "dataset.buckets=[]", "--output", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "none of the clips can be used" in told and [told.count(f"{number}.mp4") for number in range(3)] == [1, 1, 1]


def test_preview_writes_what_would_be_trained_and_loads_no_weights(job, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("trainer.components.Components._loaded", lambda *_: pytest.fail("weights are loaded"))
    out = tmp_path / "seen/of it"
    assert main(["preview", str(job), "--to", str(out), "--clips", "1", "--frames", "2", "--output", str(tmp_path)]) == 0
    report, told = json.loads((out / "dataset.json").read_text(encoding="utf-8")), capsys.readouterr().out
    assert (report["examples_per_epoch"], report["steps_per_epoch"], report["effective_batch"]) == (10, 2, "6 clips × 5 windows")
    assert "effective batch: 6 clips × 5 windows; 2 steps per epoch" in told and "2 clips kept, 1 skipped" in told and str(out) in told
    assert "2.mp4: skipped" in (out / "dataset.txt").read_text(encoding="utf-8")
    assert (out / "sheet.png").read_bytes().startswith(b"\x89PNG") and sorted(path.name for path in out.iterdir())[2:] == ["sheet.png"]


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--clips", "0"], "error: clips: 0"), (["--to", "{job}"], "error: --to"), (["--output", "{job}"], "error: {job}")],
)
def test_preview_refuses_before_it_decodes(job, tmp_path, capsys, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("trainer.data.preview.plan_dataset", lambda *_, **__: pytest.fail("clips are read"))
    assert main(["preview", str(job), *(option.format(job=job) for option in options)]) == 1
    assert said.format(job=job) in capsys.readouterr().err


def test_cache_tells_and_prunes(tmp_path, capsys):
    name = "0" * 40
    entry = tmp_path / f"video_trainer/cache/clips/00/{name}.safetensors"
    entry.parent.mkdir(parents=True)
    entry.write_bytes(bytes(2048))
    assert main(["cache", "--output", str(tmp_path)]) == 0 and entry.is_file()
    assert "unused for 30 days: none" in capsys.readouterr().out
    assert main(["cache", "--unused-for", "0", "--output", str(tmp_path)]) == 0 and entry.is_file()
    assert "can be removed: 1 file, 2.0 KiB" in capsys.readouterr().out
    assert main(["cache", "--unused-for", "0", "--prune", "--output", str(tmp_path)]) == 0 and not entry.exists()
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[:5] == ["encoded", "clips", "1", "2.0", "KiB"] and lines[-1].startswith("removed: 1 file, 2.0 KiB")
    assert main(["cache", "--unused-for=-1", "--output", str(tmp_path)]) == 1
    assert "error: unused_for: -1" in capsys.readouterr().err
