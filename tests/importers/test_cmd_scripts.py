"""Blocks, conditions and loops in scripts of cmd: read as cmd would, or told as not followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainer.errors import UserError
from trainer.importers import import_config
from trainer.importers.shell import MOST, commands
from trainer.importers.shell_cmd import DEEPEST, MOST_TOLD, MOST_TURNS

BAT = Path("a.bat")
UNKNOWN = "which is not known here"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        # %NAME% is what it was before the block, !NAME! what it is at the command
        ("set R=4\n(\nset R=16\npython t.py --a !R! --b %R%\n)", [{"a": "16", "b": "4"}]),
        ("if exist x (\nset R=16\npython t.py --a !R!\n)", [{"a": "16"}]),
        ("if exist x (set R=16& python t.py --a !R!)", [{"a": "16"}]),
        ("set A=1& python t.py --a !A!", [{"a": "1"}]),
        ("if exist x set R=9\npython t.py --a %R%", [{"a": "9"}]),
        ("if exist x (set R=9) else (set R=9)\npython t.py --a %R%", [{"a": "9"}]),
        # comparisons of words are made
        ('set M=lora\nif "%M%"=="full" (\npython t.py --a 1\n) else if /i "%M%"=="LORA" (\npython t.py --a 2\n) else (\necho\n)',
         [{"a": "2"}]),
        ("set M=1\nif not %M%==1 (set R=8) else set R=16\npython t.py --a %R%", [{"a": "16"}]),
        ("if 08 equ 8 set R=1\nif 1 neq 1 set R=2\npython t.py --a %R%", [{"a": "1"}]),
        ("if %M% neq 0 goto :end\npython t.py --a 1", [{"a": "1"}]),
        ("if %M% neq 0 goto :end\npython t.py --a 1\ngoto end\n:end\npause\nexit /b", [{"a": "1"}]),
        ("if exist x (\npython t.py --a 1\n) else (\npython t.py --a 2\n)", [{"a": "1"}, {"a": "2"}]),
        # loops over words
        ("for %%r in (8) do (\nset N=run-%%~r\npython t.py --a %%r --b !N!\n)", [{"a": "8", "b": "run-8"}]),
        ('for %%r in (8,"1 6") do python t.py --a %%r', [{"a": "8"}, {"a": "1 6"}]),
        ("for %%r in (1 2) do for %%s in (3 4) do python t.py --a %%r%%s", [{"a": "13"}, {"a": "14"}, {"a": "23"}, {"a": "24"}]),
        ("for %%r in (8 16) do set R=%%r\npython t.py --a %R%", [{"a": "16"}]),
        # brackets that are no blocks
        ("echo :(\npython t.py --a 1\necho :)", [{"a": "1"}]),
        ("if exist x (python t.py --a betas=(0.9,0.95) --b 1)", [{"a": "betas=(0.9,0.95)", "b": "1"}]),
        ("if exist x (\npython t.py --a ^(1^) --b \")\"\n)", [{"a": "(1)", "b": ")"}]),
        ("set /a R=16\npython t.py --a %R% > log.txt 2>&1 & echo --b", [{"a": "16"}]),
    ],
)  # fmt: skip
def test_blocks(script: str, expected: list[dict[str, Any]]) -> None:
    found = commands(script, BAT)
    assert [command.data for command in found] == expected and all(command.unread == () for command in found)


@pytest.mark.parametrize(
    ("script", "data", "told"),
    [
        ("set R=8\nif exist x (set R=16)\npython t.py --a %R%", {"a": "%R%"},
         f"whether R is '16' or '8' depends on 'if exist x', {UNKNOWN}"),
        ("if %X%==1 (set R=16) else set R=8\npython t.py --a %R%", {"a": "%R%"},
         f"whether R is '16' or '8' depends on 'if %X%==1', {UNKNOWN}"),
        ("for %%f in (*.toml) do python t.py --a %%f", {"a": "%f"}, "'for %%f in (*.toml)' is a loop over what is not known here"),
        ("for /l %%i in (1,1,3) do set R=%%i\npython t.py --a 1", {"a": "1"}, "'for /l %%i in (1,1,3)' is a loop over"),
        ("for /f \"tokens=1\" %%a in ('dir') do (\npython t.py --a %%a\n)", {"a": "%a"}, "is a loop over what is not known here"),
        ("set R=8\nset /a R=R*2\npython t.py --a %R%", {"a": "%R%"}, "'set /a R=R*2' gives what is not known here"),
        ("set /p R=Rank: \npython t.py --a %R%", {"a": "%R%"}, "'set /p R=Rank:' gives what is not known here"),
        ("call :train 16\npython t.py --a 1", {"a": "1"}, "'call :train 16' is not followed"),
        ('cmd /c "python t.py --b 1"\npython t.py --a 1', {"a": "1"}, "'cmd /c \"python t.py --b 1\"' is not followed"),
        ("if exist x (\nset R=16\npython t.py --a !R! --b %R%\n)", {"a": "16", "b": "%R%"}, "%R% is not known here"),
        ("goto run\nset R=1\n:run\npython t.py --a 1", {"a": "1"}, "'goto run' is not followed"),
        ("exit /b 0\npython t.py --a 1", {"a": "1"}, "'exit /b 0' is not followed"),
        ("if %1==x goto high\nset R=1\n:high\npython t.py --a 1", {"a": "1"}, "'goto high' is not followed"),
        ("python t.py --a 1 %*", {"a": "1"}, "%* stands for settings given to the script"),
        ("python t.py --a %USERPROFILE%\\t5", {"a": "%USERPROFILE%\\t5"}, "%USERPROFILE% is not known here"),
        ("if exist x (\nset R=1\npython t.py --a 1", {"a": "1"}, "'if exist x (' opens a bracket that is not closed"),
    ],
)  # fmt: skip
def test_what_is_not_followed_is_told(script: str, data: dict[str, str], told: str) -> None:
    (command,) = commands(script, BAT)
    assert command.data == data and len(command.unread) == 1 and told in command.unread[0]


def test_the_import_tells_of_it(tmp_path: Path) -> None:
    file = tmp_path / "train.bat"
    file.write_text("set R=8\nif exist x (set R=16)\ncall :more\npython wan_train_network.py --task t2v-14B --network_dim 4 --sdpa\n")
    result = import_config([file])
    assert f"train.bat: whether R is '16' or '8' depends on 'if exist x', {UNKNOWN}." in result.notes
    assert "train.bat: 'call :more' is not followed." in result.notes and result.job["adapter"]["rank"] == 4


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("(" * (DEEPEST + 2), "blocks: lie inside each other"),
        ("if a==a " * (DEEPEST + 2) + "echo", "blocks: lie inside each other"),
        (f"for %%i in ({'a ' * (MOST_TURNS + 1)}) do echo", "for: loops go round more than"),
        ("".join(f"python t.py --a {number}\n" for number in range(MOST + 2)), "commands: are more than"),
    ],
)
def test_scripts_without_end(script: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        commands(script, BAT)


def test_much_that_is_not_followed_is_cut_short() -> None:
    (command,) = commands("".join(f"call :l{number}\n" for number in range(MOST_TOLD + 5)) + "python t.py --a 1", BAT)
    assert len(command.unread) == MOST_TOLD + 1 and command.unread[-1] == "there is more that was not followed"
