"""Scripts of Windows as people write them: continued lines, variables, quotes and paths of cmd and PowerShell."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer.errors import UserError
from trainer.importers import import_config
from trainer.importers.expansion import LONGEST, MOST
from trainer.importers.shell import commands
from trainer.importers.shell_windows import of_windows
from trainer.job import TrainingJob

CMD = r"""@echo off
:: dance LoRA --not a flag
set "ROOT=C:\AI\musubi-tuner"
set MODELS=C:\my models
set "PY=%ROOT%\venv\Scripts\python.exe"
cd /d "%ROOT%"
echo encoding --now
"%PY%" "wan_cache_latents.py" ^
    --dataset_config "%ROOT%\data.toml" ^
    --vae "%MODELS%\vae.safetensors"
if %ERRORLEVEL% neq 0 goto :error
"%PY%" -m accelerate.commands.launch --num_processes 1 src\musubi_tuner\wan_train_network.py ^
    --task t2v-14B --dit "%models%\wan.safetensors" ^
    --optimizer_args betas=(0.9,0.95) weight_decay=0.1 ^
    --network_dim 8 --sdpa --output_name 100%% > log.txt 2>&1
:error
pause
"""
POWERSHELL = r"""<# dance LoRA
--not a flag #>
$root = "C:\AI\musubi-tuner"   # here
$models = "$root\my models"
$env:HF_HOME = 'D:\hf'
$steps = 800
$more = @(
    "--network_dim", 8,
    '--network_alpha', "4"
)
& "$root\venv\Scripts\python.exe" -m musubi_tuner.wan_cache_latents --vae "$models\vae.safetensors"; Write-Host "encoded --now"
if ($true) {
    accelerate launch --num_processes 1 src\musubi_tuner\wan_train_network.py `
        --task t2v-14B --dit ${models}\wan.safetensors `
        --optimizer_args "betas=(0.9,0.95)" "weight_decay=0.1" `
        --max_train_steps $steps @more --sdpa --output_name "say ""hi"" for `$5" 2>&1 | Tee-Object log.txt
}
"""


def test_cmd() -> None:
    """Lines that go on behind ^ were cut there."""
    encode, train = commands(CMD)
    assert (encode.program, train.program) == ("wan_cache_latents.py", "wan_train_network.py")
    assert encode.data == {"dataset_config": r"C:\AI\musubi-tuner\data.toml", "vae": r"C:\my models\vae.safetensors"}
    assert train.data == {
        "task": "t2v-14B", "dit": r"C:\my models\wan.safetensors", "optimizer_args": ["betas=(0.9,0.95)", "weight_decay=0.1"],
        "network_dim": "8", "sdpa": True, "output_name": "100%", "launcher": {"num_processes": "1"},
    }  # fmt: skip


def test_powershell() -> None:
    """Lines that go on behind a backtick were cut there."""
    encode, train = commands(POWERSHELL)
    assert (encode.program, train.program) == ("musubi_tuner.wan_cache_latents", "wan_train_network.py")
    assert encode.data == {"vae": r"C:\AI\musubi-tuner\my models\vae.safetensors", "environment": {"HF_HOME": r"D:\hf"}}
    assert train.data == {
        "task": "t2v-14B", "dit": r"C:\AI\musubi-tuner\my models\wan.safetensors", "launcher": {"num_processes": "1"},
        "optimizer_args": ["betas=(0.9,0.95)", "weight_decay=0.1"], "max_train_steps": "800", "network_dim": "8", "network_alpha": "4",
        "sdpa": True, "output_name": 'say "hi" for $5',
    }  # fmt: skip


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("python t.py ^\n --a 1 ^\r\n --b ^& --c d^\n", {"a": "1", "b": "&", "c": "d"}),
        ("set A=x y\npython t.py --a %A% --b \"%a%\" --c %NONE% --d !A!", {"a": ["x", "y"], "b": "x y", "c": "%NONE%", "d": ["x", "y"]}),
        ("rem python t.py --x 1\n@call python %~dp0t.py --a 1 && echo --done\n", {"a": "1"}),
        ("$a = 'x y'\npython t.py --a $a --b \"$a z\" --c '$a' --d $none `\n --e",
         {"a": "x y", "b": "x y z", "c": "$a", "d": "$none", "e": True}),
        ("$l = @('--a', 1)\n$l += @('--b')\npython t.py @l --c `'q", {"a": "1", "b": True, "c": "'q"}),
        ("$r = 16; python t.py --a $r # x; y --b", {"a": "16"}),
        ("$a = 'x;y'; $b = @('--b', 1)\npython t.py --a $a @b; # it's; --c", {"a": "x;y", "b": "1"}),
        ("$env:HF = 'a'; if ($true) { python t.py --a `\n 1; echo --b }", {"a": "1", "environment": {"HF": "a"}}),
        ("python src\\t.py --a models\\x.safetensors --b 'it'", {"a": r"models\x.safetensors", "b": "'it'"}),
    ],
)  # fmt: skip
def test_pieces(script: str, expected: dict[str, object]) -> None:
    (command,) = commands(script.replace("\r\n", "\n"))
    assert command.data == expected and command.program == "t.py"


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("python t.py --a 1", "a.bat", "cmd"), ("python t.py --a 1", "a.CMD", "cmd"), ("python t.py --a 1", "a.ps1", "powershell"),
        ("python t.py --a 1", "a.txt", ""), ("python t.py --a ^\n1", "a.sh", ""), ("#!/bin/sh\nset A=1\npython t.py --a ^", "a.txt", ""),
        ("NOW=`date +%Y%m%d`\npython t.py --a $NOW", "a.txt", ""), ("python src\\t.py \\\n --a", "a.txt", ""),
        ("a && \\\n  & b", "a.txt", ""), ("python t.py `\n --a", "a.txt", "powershell"), ("python t.py ^\n --a", "a.txt", "cmd"),
    ],
)  # fmt: skip
def test_scripts_of_windows_are_told_from_those_of_shells(text: str, name: str, kind: str) -> None:
    assert of_windows(text, Path(name)) == kind


@pytest.mark.parametrize(("name", "text"), [("train.bat", CMD), ("train.ps1", POWERSHELL), ("pasted.txt", CMD), ("pasted.txt", POWERSHELL)])
def test_they_are_imported(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_bytes(text.replace("\n", "\r\n").encode("utf-8-sig"))
    result = import_config([tmp_path / name])
    job = TrainingJob.parse({**result.job, "output": {}})
    assert (result.format, job.model.family, job.adapter.rank) == ("musubi-tuner", "wan", 8)
    assert (job.optimizer.beta2, job.optimizer.weight_decay) == (0.95, 0.1)
    assert job.model.transformer.endswith(r"my models\wan.safetensors") and job.model.vae.endswith(r"my models\vae.safetensors")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.bat", "set A=x\n" + "set A=%A%%A%\n" * 40), ("a.bat", "set A=x\n" + "set A=!A!!A!\n" * 40),
        ("a.ps1", "$A = 'x'\n" + "$A = \"$A$A\"\n" * 40), ("a.ps1", "$A = 'x'\n" + "$A += $A\n" * 40),
        ("a.ps1", "$A = @('x')\n" + "$A += $A\n" * 40),
        ("a.sh", "A=x\n" + "A=$A$A\n" * 40), ("a.sh", "A=x\n" + "A+=$A\n" * 40), ("a.sh", "A=(x)\n" + 'A+=("${A[@]}")\n' * 40),
    ],
)  # fmt: skip
def test_a_variable_that_doubles_ends(name: str, text: str, tmp_path: Path) -> None:
    """It filled the memory."""
    (tmp_path / name).write_text(f"{text}python t.py --a 1", encoding="utf-8")
    with pytest.raises(UserError, match=rf"{name}, variable A: comes to more than {LONGEST} characters"):
        import_config([tmp_path / name])


@pytest.mark.parametrize(("name", "set_to", "used"), [("a.bat", "set A=", "%A%"), ("a.ps1", "$A = ", "$A"), ("a.sh", "A=", "$A")])
def test_variables_that_are_put_everywhere_end(name: str, set_to: str, used: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(f"{set_to}{'x' * LONGEST}\npython t.py" + f" --a {used}" * (MOST // LONGEST + 1), encoding="utf-8")
    with pytest.raises(UserError, match=rf"{name}, variables: come to more than {MOST} characters"):
        import_config([tmp_path / name])
