"""Issue 4, "Must show": each line of it, measured.

    python tests/acceptance/families.py [--gpu] [line ...]

Run it in the environment that `make test` makes (.venv), with a ComfyUI for lines 4, 5 and 8. With --gpu there are line 6,
whose model needs 28 GiB of memory, and a line for each family of line 7: 71 and on, each alone under 8 minutes.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.acceptance.lines import Check, Lines, Skipped, at_most, main, passed_tests  # noqa: E402
from tests.benchmarks.full_size import FULL  # noqa: E402
from tests.benchmarks.training import STEPS  # noqa: E402

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
    return [passed_tests(*_existing("tests/models/test_framepack.py"))]


def in_core() -> list[Check]:
    """Base and LoRA in ComfyUI's own classes, loaded by its own key map."""
    _require_comfyui()
    return [passed_tests(f"tests/models/{file.name}") for file in sorted((ROOT / "tests/models").glob("test_*_in_comfy.py"))]


def round_trips() -> list[Check]:
    """LoRA converters, single files, fp8 layouts, recognition by the header."""
    _require_comfyui()
    named = sorted(str(file.relative_to(ROOT)) for file in (ROOT / "tests/models").glob("test_*_files.py"))
    return [
        passed_tests("tests/adapters"),
        passed_tests(*named, *_existing("tests/models/test_recognition.py", "tests/models/test_gguf.py")),
    ]


def loading(form: str = "fp8_scaled, kept") -> list[Check]:
    """Peak host memory over what loading must hold, for a 14B-shaped file."""
    from tests.benchmarks.loading import measured

    peak, allowed = measured(form)
    return [at_most(f"peak anonymous memory while loading {form}, GiB", peak, allowed, ".2f")]


def at_full_size(name: str) -> list[Check]:
    """LoRA steps at the size that the family is usually trained at, beside plain diffusers and peft."""
    import torch

    from tests.benchmarks.families import row, told

    if not torch.cuda.is_available():
        raise Skipped("no CUDA device")
    found = row(name)
    print(f"  {told(found)} on {torch.cuda.get_device_name()}")
    return [
        at_most(
            f"{name}: GiB over plain's, after {STEPS} steps with a loss that is a number",
            found["ours"].allocated_gib / found["plain"].allocated_gib,
            1.1,
        )
    ]


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

ON_GPU: Lines = {6: ("Host memory while loading bf16", partial(loading, "bf16"))}
ON_GPU |= {71 + number: (f"{name} at full size", partial(at_full_size, name)) for number, name in enumerate(FULL)}

if __name__ == "__main__":
    sys.exit(main(LINES, ON_GPU))
