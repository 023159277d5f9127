"""The command line refuses before it works."""

import pytest

from tests.tiny_wan import write_tiny_wan
from trainer.__main__ import main


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
