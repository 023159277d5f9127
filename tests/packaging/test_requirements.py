"""requirements.txt and pyproject.toml: what people, Manager and the registry read."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib


def lines(path: Path) -> list[str]:
    """The lines as Manager reads them; ascii, since it opens the file in the machine's own encoding."""
    found = (line.split("#")[0].strip() for line in path.read_text(encoding="ascii").splitlines())
    return [line for line in found if line]


@pytest.fixture(scope="module")
def project(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def requirements(root: Path) -> dict[str, Requirement]:
    return {requirement.name: requirement for requirement in map(Requirement, lines(root / "requirements.txt"))}


def test_both_files_name_the_same_requirements(root: Path, project: dict[str, Any]) -> None:
    assert project["project"]["dependencies"] == lines(root / "requirements.txt")
    assert project["project"]["optional-dependencies"]["dev"] == lines(root / "tests" / "requirements.txt")


def test_nothing_of_torch_is_required(requirements: dict[str, Requirement]) -> None:
    assert not [name for name in requirements if re.match(r"torch|nvidia|triton|xformers|cuda", name)]


def test_the_standalone_extra_does_not_pin_torch(project: dict[str, Any]) -> None:
    assert project["project"]["optional-dependencies"]["standalone"] == ["torch"]


def test_every_line_is_one_plain_requirement(root: Path) -> None:
    """Manager hands a line to pip as one word: no options, no second name, no address; nothing is pinned to one version."""
    for line in lines(root / "requirements.txt"):
        requirement = Requirement(line)
        assert requirement.url is None and requirement.marker is None, line
        assert not [part for part in requirement.specifier if part.operator in ("==", "===", "~=")], line


@pytest.mark.parametrize("name", ["numpy", "pillow", "safetensors", "einops", "pydantic", "av", "transformers"])
def test_lines_accept_what_comfyui_accepts(requirements: dict[str, Requirement], name: str) -> None:
    """No upper bound on what ComfyUI itself brings, so that we never move it down."""
    assert not [part for part in requirements[name].specifier if part.operator.startswith("<")]


def test_diffusers_takes_the_hub_of_transformers_4(root: Path, requirements: dict[str, Requirement]) -> None:
    """0.39 accepts huggingface_hub 0.34 to 1.x; 0.40 asks for 1.23, which transformers 4.57 refuses at import."""
    assert "0.39.0" in requirements["diffusers"].specifier
    assert "0.40.0" not in requirements["diffusers"].specifier
    assert [line for line in lines(root / "requirements.txt") if line.startswith("diffusers>=")], "Manager reads the first bound only"


def test_registry_fields(project: dict[str, Any]) -> None:
    comfy = project["tool"]["comfy"]
    assert comfy["DisplayName"] == "Video Trainer" and comfy["PublisherId"]
    assert SpecifierSet(comfy["requires-comfyui"])
    assert "web" not in comfy, "with WEB_DIRECTORY this loads every script twice"
    assert project["project"]["name"] == "video-trainer"
    assert SpecifierSet(project["project"]["requires-python"]) == SpecifierSet(">=3.10")
    assert {"Repository", "Documentation", "Issues"} <= project["project"]["urls"].keys()


def test_one_version(root: Path, project: dict[str, Any]) -> None:
    import trainer

    assert trainer.__version__ == project["project"]["version"]
    assert f"## [{trainer.__version__}]" in (root / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_licence_is_the_whole_apache_2(root: Path) -> None:
    text = (root / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text and len(text) > 10_000
