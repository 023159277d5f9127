"""Blocks, loops and heredocs of shell scripts: what is not followed is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainer.errors import UserError
from trainer.importers import import_config
from trainer.importers.doubts import MOST_OPEN, MOST_TURNS
from trainer.importers.shell import commands

SH = Path("a.sh")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        # assignments behind keywords
        ('if x; then E="--fp8_base"; fi\npython t.py --a 1 $E', [{"a": "1", "fp8_base": True}]),
        ("if x; then\necho\nelse LR=7e-5\nfi\npython t.py --a $LR", [{"a": "7e-5"}]),
        ("x && { LR=3e-5; }\npython t.py --a $LR", [{"a": "3e-5"}]),
        # heredocs
        ("cat > x.py <<EOF\npython t.py --a 9\nA=9\nEOF\nA=1\npython t.py --a $A", [{"a": "1"}]),
        ("cat <<'E F' > x\nit's\nE F\npython t.py --a 1", [{"a": "1"}]),
        ("cat<<-EOF\n\tpython t.py --a 9\n\tEOF\npython t.py --a 1", [{"a": "1"}]),
        ("cat <<A <<B\n--a 8\nA\npython t.py --a 9\nB\npython t.py --a 1", [{"a": "1"}]),
        ("cat <<<EOF\npython t.py --a 1", [{"a": "1"}]),
        # nothing is in doubt: set anew for sure, alike in all branches, or in the branch that uses it
        ("A=1\nif x; then A=2; fi\nA=3\npython t.py --a $A", [{"a": "3"}]),
        ("if x; then A=2; else A=2; fi\npython t.py --a $A", [{"a": "2"}]),
        ("A=1\nif x; then A=2; python t.py --a $A; fi", [{"a": "2"}]),
        ("A=1\nif x; then A=2; fi\npython t.py --a 1", [{"a": "1"}]),
        ("x=(--a 1)\nx+=(--b 2)\npython t.py \"${x[@]}\"", [{"a": "1", "b": "2"}]),
        # loops over words
        ("for d in 8; do python t.py --a $d; done", [{"a": "8"}]),
        ("for d in 4 8; do\nfor e in x y; do python t.py --a $d$e; done\ndone > log", [{"a": v} for v in ("4x", "4y", "8x", "8y")]),
        ("for d in 4 8; do R=$d; done\npython t.py --a $R", [{"a": "8"}]),
        ("for f in *.mp4; do echo $f; done\npython t.py --a 1", [{"a": "1"}]),
        ("while [[ $# -gt 0 ]]; do\ncase $1 in\n--lr|-l) shift ;;\nesac\ndone\npython t.py --a 1", [{"a": "1"}]),
        ("cd \"$X\" && $PYTHON t.py --a 1", [{"a": "1"}]),
    ],
)  # fmt: skip
def test_blocks(script: str, expected: list[dict[str, Any]]) -> None:
    found = commands(script, SH)
    assert [command.data for command in found] == expected and all(command.unread == () for command in found)


@pytest.mark.parametrize(
    ("script", "data", "told"),
    [
        ("if x; then A=1\nelse A=2; B=3; fi\nx || B=4\npython t.py --a $A --b $B", {"a": "2", "b": "4"},
         "what A, B are depends on what is not followed here; taken is A '2', B '4'"),
        ("A=1\ncase $M in\nx|y) A=2 ;;\n*) A=3 ;;\nesac\npython t.py --a $A", {"a": "3"}, "what A is depends on"),
        ("A=1\nx && A=2\nB=\"z$A\"\npython t.py --a $B", {"a": "z2"}, "what A is depends on what is not followed here; taken is A '2'"),
        ("x=(--a 1)\n[ -n \"$Y\" ] && x+=(--b 2)\npython t.py \"${x[@]}\"", {"a": "1", "b": "2"}, "taken is x '--a 1 --b 2'"),
        ("A=1\nf() {\nA=2\n}\npython t.py --a $A", {"a": "2"}, "what A is depends on"),
        ("A=1\nfunction f {\npython t.py --a $A\n}\nA=2\nf", {"a": "1"}, "what A is depends on what is not followed here; taken is A '1'"),
        ("A=1\nwhile x; do A=2; done\npython t.py --a $A", {"a": "2"}, "what A is depends on"),
        ("for f in *.toml; do python t.py --a $f; done", {"a": "$f"}, "$f is not known here; it stays as it is written"),
        ("python t.py --a $M/w.x --b run_${T} --c $1", {"a": "$M/w.x", "b": "run_${T}", "c": "$1"},
         "$M, ${T}, $1 are not known here; they stay as they are written"),
        ('python t.py --a 1 "$@" $*', {"a": "1"}, "$@, $* stand for settings given to the script, which are not known here; left out"),
        ("cat <<EOF\npython t.py --a 1", {"a": "1"}, "the text behind <<EOF has no end"),
    ],
)  # fmt: skip
def test_what_is_not_followed_is_told(script: str, data: dict[str, str], told: str) -> None:
    (command,) = commands(script, SH)
    assert command.data == data and len(command.unread) == 1 and told in command.unread[0]


def test_a_loop_round_the_training_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("for d in 4 8; do python wan_train_network.py --task t2v-14B --network_dim $d; done\n", encoding="utf-8")
    with pytest.raises(UserError, match="several times"):
        import_config([tmp_path / "a.sh"])


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("{ " * (MOST_OPEN + 1), "blocks: lie inside each other"),
        (f"for i in {'a ' * (MOST_TURNS + 2)}; do echo; done", "for: loops go round more than"),
    ],
)
def test_scripts_without_end(script: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        commands(script, SH)
