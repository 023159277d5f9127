"""The documents point at things that exist."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]


def heading_anchors(text: str) -> set[str]:
    """GitHub's anchors of a Markdown text."""
    titles = re.findall(r"(?m)^#+ (.+)$", text)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_local_links_exist(root: Path, name: str) -> None:
    text = (root / name).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", text):
        link = target[0] or target[1]
        if re.match(r"https?:|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        assert not path or (root / unquote(path)).exists(), f"{name} links to {path}, which is not there"
        if anchor and not path:
            assert anchor in heading_anchors(text), f"{name} links to #{anchor}, which is no heading of it"


def test_the_readme_names_both_commands(root: Path) -> None:
    text = (root / "README.md").read_text(encoding="utf-8")
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    for target in ("demo", "test"):
        assert f"make {target}" in text and re.search(rf"(?m)^{target}:", makefile)


def test_ci_runs_the_readmes_test_command(root: Path) -> None:
    assert (root / ".ci" / "run").read_text(encoding="utf-8").rstrip().endswith("\nmake test")
