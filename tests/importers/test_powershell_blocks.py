"""Blocks, loops and lists of PowerShell scripts: what is not followed is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer.importers.shell import commands

LIST = "$x = [System.Collections.ArrayList]::new()\n"


@pytest.mark.parametrize(
    ("script", "data", "told"),
    [
        (LIST + '$b = 2\n[void]$x.Add("--a=$b")\n$x.Add("--c") | Out-Null\n$null = $x.Add("--d=1 2")\npython t.py $x',
         {"a": "2", "c": True, "d": "1 2"}, ""),
        ('$x = New-Object System.Collections.ArrayList\n$x.AddRange(@("--a", "1"))\npython t.py @x', {"a": "1"}, ""),
        ("$x = [System.Collections.Generic.List[string]]::new()\n$x.Add('--a=1')\npython t.py $x", {"a": "1"}, ""),
        ('$lr = "1"\nif ($y) { $lr = "2" }\npython t.py --a $lr', {"a": "2"},
         "what lr is depends on what is not followed here; taken is lr '2'"),
        ("$a = 1\nif ($y) {\n$a = 2\n} else {\n$a = 3\n}\n$a = 4\npython t.py --a $a", {"a": "4"}, ""),
        ("foreach ($d in @(8)) { python t.py --a $d }", {"a": "8"}, ""),
        ("python t.py --a 1 @args $args", {"a": "1"}, "@args, $args stand for settings given to the script"),
        ("python t.py --a $m\\w.x", {"a": "$m\\w.x"}, "$m is not known here"),
    ],
)  # fmt: skip
def test_blocks(script: str, data: dict[str, object], told: str) -> None:
    (command,) = commands(script, Path("a.ps1"))
    assert command.data == data and len(command.unread) == bool(told) and all(told in text for text in command.unread)


def test_a_loop_gives_each_run() -> None:
    assert [command.data for command in commands("foreach ($d in 4, 8) {\npython t.py --a $d\n}", Path("a.ps1"))] == [
        {"a": "4"},
        {"a": "8"},
    ]
