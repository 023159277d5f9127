"""Prompts and sizes written one per line; needs no ComfyUI."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def lines(pack: ModuleType) -> ModuleType:
    return import_module(f"{pack.__name__}.nodes.prompt_lines")


def test_all_parts(lines: ModuleType) -> None:
    (prompt,) = lines.parse_prompts(" a fox | blurry | 49x480x832 | 7 ")
    assert (prompt.prompt, prompt.negative, str(prompt.size), prompt.seed) == ("a fox", "blurry", "49x480x832", 7)


def test_parts_may_be_left_out(lines: ModuleType) -> None:
    prompts = lines.parse_prompts("a fox\n\n# not this\nan owl || 17X64×64\n")
    assert [(p.prompt, p.negative, str(p.size or ""), p.seed) for p in prompts] == [("a fox", "", "", 0), ("an owl", "", "17x64x64", 0)]


def test_faults_name_their_line(lines: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"line 1.*'-1' is not a seed") as caught:
        lines.parse_prompts("a ||| -1\nfine\nb | | 12")
    assert "prompts, line 3" in str(caught.value)


def test_sizes(lines: ModuleType) -> None:
    assert [str(size) for size in lines.parse_buckets("49x480x832\n\n 17 x 64 x 64 ")] == ["49x480x832", "17x64x64"]
    with pytest.raises(ValueError, match="sizes, line 2"):
        lines.parse_buckets("49x480x832\n480p")
