"""The command plan: models that are not here, what is refused, and what it says meanwhile."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path

import pytest
import torch

from tests.memory.test_plan import planned
from trainer.__main__ import main
from trainer.errors import UserError
from trainer.memory.planned_model import released_as
from trainer.models import family_class
from trainer.source import job_or_model

ARGUMENTS = ["--card", "RTX 4090", "--set", 'dataset.buckets=["9x256x256"]']


def test_a_released_model_that_is_not_here_is_planned_by_its_configurations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = []
    (tmp_path / "job.json").write_text(json.dumps({"model": {"source": "Wan-AI/Wan2.1-T2V-1.3B-Diffusers"}}))
    for model in ("wan/t2v-1.3b", "Wan-AI/Wan2.1-T2V-1.3B-Diffusers", str(tmp_path / "job.json")):
        assert main(["plan", model, *ARGUMENTS, "--output", str(tmp_path)]) == 0
        told = capsys.readouterr()
        tables.append(told.out.splitlines())
        assert "rehearsing" in told.err
    assert tables[0][1] == "model           wan t2v-1.3b, as released"
    assert tables[1][1] == tables[2][1] == "model           wan t2v-1.3b, as released, since 'Wan-AI/Wan2.1-T2V-1.3B-Diffusers' is not here"
    assert tables[0][2:-1] == tables[1][2:-1] == tables[2][2:-1]
    expected = planned(["9x256x256"], "RTX 4090")
    assert f"weights {expected.weights:.1f}, " in "\n".join(tables[0])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("someone/thing", r"'someone/thing' is not on this machine .* set model\.source to its family and variant, such as \w+/"),
        ("wan/t2v-15b", r"'t2v-15b' is not one of its variants\. Name one"),
        ("wan", r"wan: is a family of several models\. Name one"),
    ],
)
def test_a_model_that_nothing_is_known_of(model: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", model, *ARGUMENTS, "--output", str(tmp_path)]) == 1
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("source", "family", "variant"),
    [
        ("Wan-AI/Wan2.1-T2V-14B-Diffusers", "wan", "t2v-14b"),
        ("Wan-AI/Wan2.1-I2V-14B-720P-Diffusers", "wan", "i2v-14b-720p"),
        ("Wan-AI/Wan2.1-FLF2V-14B-720P-diffusers", "wan", "flf2v-14b"),
        ("Wan-AI/Wan2.2-T2V-A14B-Diffusers", "wan", "t2v-a14b"),
        ("Wan-AI/Wan2.2-TI2V-5B-Diffusers", "wan", "ti2v-5b"),
        ("zai-org/CogVideoX-5b", "cogvideox", "5b-t2v"),
        ("zai-org/CogVideoX-5b-I2V", "cogvideox", "5b-i2v"),
        ("zai-org/CogVideoX1.5-5B", "cogvideox", "1.5-5b-t2v"),
        ("hunyuanvideo-community/HunyuanVideo", "hunyuan_video", "t2v"),
        ("hunyuanvideo-community/HunyuanVideo-I2V", "hunyuan_video", ""),  # two releases are called so
        ("hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-480p_t2v", "hunyuan_video_15", "t2v-480p"),
        ("lllyasviel/FramePackI2V_HY", "framepack", "i2v"),
        ("genmo/mochi-1-preview", "mochi", "1-preview"),
        ("HiDream-ai/HiDream-I1-Full", "hidream", "i1-full"),
        ("Lightricks/LTX-Video", "ltx_video", ""),
        ("someone/Wan-Small-Diffusers", "wan", ""),
    ],
)
def test_releases_by_their_names(source: str, family: str, variant: str) -> None:
    assert released_as(source, family_class(family).layout.variants) == variant


@pytest.mark.parametrize("name", ["job", "job.txt", "JOB.JSON", "job.2026-10"])
def test_a_job_file_may_have_any_name(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those without .json were taken for a model's name."""
    job = tmp_path / name
    job.write_text(json.dumps({"model": {"source": "wan/t2v-1.3b"}, "dataset": {"buckets": ["9x256x256"]}, "memory": {"weights": "nf4"}}))
    assert main(["plan", str(job), "--card", "RTX 4090", "--output", str(tmp_path)]) == 0
    assert re.search(r"frozen weights +nf4", capsys.readouterr().out)


def test_what_is_no_job_is_told_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(8))
    (tmp_path / "notes.txt").write_text("no job")
    (tmp_path / "folder.json").mkdir()
    assert job_or_model(str(tmp_path / "model.safetensors")).model.source.endswith("model.safetensors")
    assert job_or_model(str(tmp_path)).model.source == str(tmp_path)
    for name, told in (("notes.txt", "is not JSON"), ("absent.json", "cannot be read"), ("folder.json", "cannot be read")):
        with pytest.raises(UserError, match=told):
            job_or_model(str(tmp_path / name))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_job_may_come_through_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(json.dumps({"model": {"source": "a model"}}),))
    writer.start()
    assert job_or_model(str(pipe)).model.source == "a model"
    writer.join()


def test_what_training_refuses_is_not_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "wan/t2v-1.3b", *ARGUMENTS, "--set", "optimizer.name=Prodigy", "--output", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert "Prodigy finds the rate by itself" in told.err and not told.out


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        ({"name": "other", "other": "NoSuch"}, "optimizer.other: pytorch_optimizer has no optimizer 'NoSuch'"),
        ({"name": "other", "other": "SAM"}, "optimizer.other: SAM cannot be used here: it needs base_optimizer"),
        ({"options": "no_such=1"}, "optimizer.options: AdamW has no no_such."),
    ],
)
def test_an_optimizer_that_training_refuses_is_not_planned(
    optimizer: dict[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was planned as if it were AdamW. The job's device may be that of another machine, whose card is named."""
    pytest.importorskip("pytorch_optimizer")
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"model": {"source": "wan/t2v-1.3b"}, "optimizer": optimizer, "compute": {"device": "cuda:7"}}))
    assert main(["plan", str(job), *ARGUMENTS, "--output", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert message in told.err and not told.out


def test_an_optimizer_is_planned_for_a_card_of_another_machine(tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"model": {"source": "wan/t2v-1.3b"}, "optimizer": {"name": "Muon"}, "compute": {"device": "cuda:7"}}))
    assert main(["plan", str(job), *ARGUMENTS, "--output", str(tmp_path)]) == 0


@pytest.mark.parametrize("saving", ["tiling", "slicing"])
def test_savings_that_the_vae_does_not_have_are_not_planned(
    saving: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(family_class("wan"), "load_vae", lambda self: torch.nn.Identity())
    assert main(["plan", "wan/t2v-1.3b", *ARGUMENTS, "--set", f"memory.vae_{saving}=true", "--output", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert f"memory.vae_{saving}: this model's VAE has no {saving}. Set it to false." in told.err and not told.out


def test_a_download_that_fails_is_told_and_nothing_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nothing listens
    assert main(["plan", "Wan-AI/Wan2.1-T2V-1.3B-Diffusers", *ARGUMENTS, "--allow-downloads", "--output", str(tmp_path)]) == 1
    assert "could not be downloaded" in capsys.readouterr().err
