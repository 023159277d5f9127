"""Issue 4, "Must show": each line of it, measured.

    python tests/acceptance/families.py [--gpu] [line ...]

Run it in the environment that `make test` makes (.venv), with a ComfyUI for lines 4, 5 and 8; line 7 needs a card.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.acceptance.lines import Check, Skipped, at_most, main, passed_tests  # noqa: E402

FAMILIES = "tests/models/test_families.py"


def trains() -> list[Check]:
    """Every family and variant: step 0, batch sizes over mixed lengths, and the loss on one clip."""
    from tests.tiny import ALL

    print(f"  {len(ALL)} variants: {', '.join(map(str, ALL))}")
    return [passed_tests(FAMILIES, "-k", name) for name in ("step_zero", "trains_at_any", "loss_falls")]


def velocities() -> list[Check]:
    """The velocity of each diffusers pipeline, and gradients against a central difference."""
    return [passed_tests(FAMILIES, "-k", name) for name in ("velocity", "gradient")]


def sections() -> list[Check]:
    """Index tables, and what the pipeline feeds."""
    return [passed_tests("tests/models/test_framepack.py")]


def in_core() -> list[Check]:
    """Base and LoRA in ComfyUI's own classes, loaded by its own key map."""
    _require_comfyui()
    return [passed_tests(f"tests/models/{file.name}") for file in sorted((ROOT / "tests/models").glob("test_*_in_comfy.py"))]


def round_trips() -> list[Check]:
    """LoRA converters, single files, fp8 layouts, recognition by the header."""
    _require_comfyui()
    return [
        passed_tests("tests/adapters"),
        passed_tests(*_existing("tests/models/test_single_files.py", "tests/models/test_recognition.py")),
    ]


def loading() -> list[Check]:
    """Peak host memory over what loading must hold, for a 14B-shaped fp8 file."""
    from tests.benchmarks.loading import measured

    peak, allowed = measured()
    return [at_most("peak anonymous memory while loading, GiB", peak, allowed, ".2f")]


def workflows() -> list[Check]:
    """An example workflow for each family through /prompt, all branches."""
    _require_comfyui()
    return [passed_tests(*_existing("tests/host/test_family_workflows.py"))]


def _existing(*files: str) -> tuple[str, ...]:
    """The files, of which none may be missing."""
    assert all((ROOT / file).is_file() for file in files), files
    return files


def _require_comfyui() -> None:
    from tests.conftest import find_comfyui

    if find_comfyui() is None:
        raise Skipped("no ComfyUI here: set COMFYUI_PATH to its folder")


LINES = {
    1: ("Every family trains", trains),
    2: ("The pipelines' velocities, and right gradients", velocities),
    3: ("Sections of long videos", sections),
    4: ("In ComfyUI's own classes", in_core),
    5: ("Round trips of files", round_trips),
    6: ("Host memory while loading", loading),
    8: ("An example workflow for each family", workflows),
}

if __name__ == "__main__":
    sys.exit(main(LINES))
