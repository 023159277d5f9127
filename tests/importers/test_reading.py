"""Foreign files as they come: Windows paths, encodings, shell scripts, and what tells one format from another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importers.examples import FINETRAINERS_COMMAND, MUSUBI, PIPE_DATASET, PIPE_TRAINING, VALIDATION_JSON
from trainer.errors import UserError
from trainer.importers import documents, import_config
from trainer.importers.shell import commands
from trainer.importers.sources import guessed_kind


@pytest.mark.parametrize("path", [r"C:\new\users", r"C:\tools\new", r"C:\data\clips", r"D:\bilder\neu", r"data\new clips"])
def test_a_windows_path_in_double_quotes(path: str, tmp_path: Path) -> None:
    file = tmp_path / "dataset.toml"
    file.write_text(f'# folders\n[[directory]]\npath = "{path}"\n', encoding="utf-8")
    with pytest.raises(UserError) as caught:
        import_config([file])
    (problem,) = caught.value.problems
    assert problem.where == f"{file}, line 3" and path in problem.found and problem.cure == f"Write it in single quotes: '{path}'."
    file.write_text(f"[[directory]]\npath = '{path}'\n", encoding="utf-8")
    assert import_config([file]).job["dataset"]["sources"][0]["folder"] == path


@pytest.mark.parametrize("path", [r"C:\new\users", r"C:\tools\new", r"C:\data\clips"])
def test_a_windows_path_in_json(path: str, tmp_path: Path) -> None:
    file = tmp_path / "preset.json"
    file.write_text('{"training_method": "LORA",\n "base_model_name": "' + path + '"}', encoding="utf-8")
    with pytest.raises(UserError, match=r"line 2.*single backslashes") as caught:
        import_config([file])
    assert path.replace("\\", "/") in caught.value.problems[0].cure
    file.write_text('{"training_method": "LORA", "base_model_name": "' + path.replace("\\", "\\\\") + '"}', encoding="utf-8")
    assert import_config([file]).job["model"]["source"] == path


def test_windows_paths_in_commands_keep_their_backslashes() -> None:
    (command,) = commands(r"python train.py --data_root C:\new\clips --output_dir 'D:\my runs' --cache_dir " + r'"E:\temp\x"' + "\r\n")
    assert [command.data[name] for name in ("data_root", "output_dir", "cache_dir")] == [r"C:\new\clips", r"D:\my runs", r"E:\temp\x"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("A='x y'\npython t.py --a $A --b \"$A\" --c '$A'", {"a": ["x", "y"], "b": "x y", "c": "$A"}),
        ("A=1; A+=2; B=${A}3\npython t.py --a=$B --b ${C:-dflt} --c $UNKNOWN", {"a": "123", "b": "dflt", "c": "$UNKNOWN"}),
        ("x=(--a 1)\nx+=(--b \"two words\" # note\n)\npython t.py \"${x[@]}\" > log.txt 2>&1", {"a": "1", "b": "two words"}),
        ("empty=()\npython t.py \"${empty[@]}\" --a -1 --b \\\n  c && echo --done", {"a": "-1", "b": "c"}),
        ("X=\"--a \\\"p q\\\"\"\neval python t.py $X", {"a": "p q"}),
        ("echo python t.py --b 2\npip install --upgrade pip\nNCCL=1 python -m pkg.mod --a 3", {"a": "3", "environment": {"NCCL": "1"}}),
        ("python t.py --a \"unfinished", {"a": "unfinished"}),
    ],
)  # fmt: skip
def test_shell(script: str, expected: dict[str, object]) -> None:
    (command,) = commands(script)
    assert command.data == expected


def test_a_scripts_text_is_never_run(tmp_path: Path) -> None:
    target = tmp_path / "ran"
    found = commands(f"$(touch {target})\nA=`touch {target}`\npython t.py --a $(touch {target})")
    assert found[0].data["a"] == f"$(touch {target})" and not target.exists()


def test_two_runs_in_one_import_are_refused(tmp_path: Path) -> None:
    (tmp_path / "two.sh").write_text("python train.py --model_name wan --data_root a --rank 1\npython train.py --model_name wan --rank 2\n")
    (tmp_path / "a.toml").write_text(PIPE_TRAINING, encoding="utf-8")
    (tmp_path / "b.toml").write_text(PIPE_TRAINING, encoding="utf-8")
    (tmp_path / "musubi.toml").write_text(MUSUBI, encoding="utf-8")
    with pytest.raises(UserError, match="several times"):
        import_config([tmp_path / "two.sh"])
    with pytest.raises(UserError, match="several runs"):
        import_config([tmp_path / "a.toml", tmp_path / "b.toml"])
    with pytest.raises(UserError, match="several trainers"):
        import_config([tmp_path / "a.toml", tmp_path / "musubi.toml"])
    assert import_config([tmp_path / "a.toml", tmp_path / "a.toml"]).files == ("a.toml",)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (PIPE_DATASET, "diffusion-pipe"),
        (MUSUBI, "musubi-tuner"),
        (VALIDATION_JSON, "sample prompts"),
        (FINETRAINERS_COMMAND, "finetrainers"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_formats_are_told_by_content(text: str, name: str, encoding: str, tmp_path: Path) -> None:
    (tmp_path / "pasted.txt").write_bytes(text.replace("\n", "\r\n").encode(encoding))
    assert import_config([tmp_path / "pasted.txt"]).format == name


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.toml", b"x = [1,\n", "is not TOML"),
        ("a.json", b'{"a": ', "is not JSON"),
        ("a.json", b'{"a": 1}', "no configuration of a trainer"),
        ("a.txt", b"just words", "holds no command"),
        ("a.sh", b"\xff\xfe\xfd", "is not UTF-8"),
        ("a.yaml", b"a: 1", "is YAML"),
        ("a.sh", b"python train.py --model_name wan --video_resolution_buckets 49x512", "49x512"),
        ("a.toml", b"x = " + b"[" * 5000, "inside each other without end"),
        ("a.toml", b".".join([b"a"] * 5000) + b" = 1", "inside each other without end"),
        ("a.toml", b"x = " + b"[" * 99 + b"]" * 99, "inside each other without end"),
        ("a.toml", b"x = " + b"1" * 5000, "is not TOML"),
        ("a.txt", b"[a]\nx = " + b"{a=" * 5000, "inside each other without end"),
        ("a.json", b'{"a":' * 900 + b"1" + b"}" * 900, "inside each other without end"),
        ("a.csv", b'caption\n"' + b"x" * 140_000 + b'"', "is no table"),
    ],
)
def test_other_files_are_refused_with_their_name(name: str, data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=message) as caught:
        import_config([tmp_path / name])
    assert name in str(caught.value) or "video_resolution_buckets" in str(caught.value)
    with pytest.raises(UserError, match="cannot be read"):
        import_config([tmp_path / "missing.toml"])


def test_python_310_says_what_reads_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(documents, "import_module", absent)
    (tmp_path / "a.toml").write_text(PIPE_TRAINING, encoding="utf-8")
    with pytest.raises(UserError, match='pip install "tomli"'):
        import_config([tmp_path / "a.toml"])


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        (["a.mp4", "a.txt"], "folder"),
        (["videos.txt", "prompt.txt", "videos"], "list"),
        (["metadata.jsonl", "a.mp4"], "table"),
        (["00.tar"], "webdataset"),
        (["00.TAR.GZ", "01.tgz"], "webdataset"),
        (["train.parquet"], "hub"),
        (["data-00000-of-00001.arrow"], "hub"),
        (["cache-12ab.arrow", "a.mp4"], "folder"),
        (["prompts.txt", "a.mp4"], "folder"),
        (["videos", "captions"], "paired"),
    ],
)
def test_the_kind_of_a_dataset_is_seen_in_its_folder(files: list[str], kind: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).touch()
    assert guessed_kind(str(tmp_path)) == kind


def test_the_kind_of_a_dataset_that_is_not_here() -> None:
    assert guessed_kind("finetrainers/crush-smol") == "hub"
    assert {guessed_kind(path) for path in ("-x/y", "a" * 5000, "a\0/b", "_a/b")} == {"folder"}
    assert {guessed_kind(path) for path in ("/data/clips", "./data/clips", r"C:\data\clips", "clips")} == {"folder"}


@pytest.mark.parametrize(
    ("text", "where", "found", "cure"),
    [
        ("a = 1\nsdpa\nb = 2\n", "line 2", "sdpa has no value.", "sdpa = true"),
        ("a = 1\n--fp8_base # quick\n", "line 2", "fp8_base has no value.", "fp8_base = true"),
        ("a = 1\nsdpa = # on\n", "line 2", "sdpa has no value.", "sdpa = true"),
        ("a = 1\nsdpa", "line 2", "sdpa has no value.", "sdpa = true"),
        ("a = 1\nb = 2\na = 3\n", "line 3", "a is given before, in line 1.", "Keep the one that holds."),
        ("[m]\na = 1\n[n]\na = 1\n'a' = [\n  1,\n]\n", "line 5", "a is given before, in line 4.", "Keep the one that holds."),
        ("[model]\na = 1\n[b]\n[model]\nc = 1\n", "line 4", "[model] is given before, in line 1.", "Join the two."),
    ],
)
def test_mistakes_in_toml_are_told_with_their_line(text: str, where: str, found: str, cure: str, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        import_config([tmp_path / "a.toml"])
    (problem,) = caught.value.problems
    assert (problem.where, problem.found) == (f"{tmp_path / 'a.toml'}, {where}", found) and cure in problem.cure


TRAINING = "python wan_train_network.py --task t2v-14B --dit /m/w.safetensors --network_dim 8 --output_name mine"


def test_other_programs_of_a_script_are_left_out_and_told(tmp_path: Path) -> None:
    """musubi-tuner's own pages go on with these: the whole script was refused."""
    script = tmp_path / "train.sh"
    script.write_text(f"{TRAINING}\npython convert_lora.py --input a --output b --target other\n", encoding="utf-8")
    found = import_config([script])
    assert found.job["adapter"]["rank"] == 8
    assert [note for note in found.notes if "convert_lora.py" in note and "left out" in note]
    script.write_text("python convert_lora.py --input a\npython merge.py --other b\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"convert_lora\.py.*no configuration of a trainer"):
        import_config([script])


@pytest.mark.parametrize("program", ["sdxl_train_network.py", "ltx2_train_network.py"])
def test_kohyas_other_programs_are_not_taken_for_finetrainers(program: str, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"python {program} --dataset_config d.toml --network_module n --network_dim 8 --seed 1\n", encoding="utf-8")
    with pytest.raises(UserError, match="no configuration of a trainer"):
        import_config([script])
