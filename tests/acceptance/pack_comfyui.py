"""A ComfyUI small enough to be carried to a card's machine: `python tests/acceptance/pack_comfyui.py comfyui.tar.gz`.

It holds ComfyUI without its tests, models and blueprints, an empty front end, and from this environment the packages in PACKAGES that
are Python alone, or nearly: comfy-kitchen goes without its CUDA kernels, which nothing of ours calls. Core's nodes that need kornia,
spandrel or OpenGL stay away. There:

    tar xzf comfyui.tar.gz -C /tmp
    export COMFYUI_PATH=/tmp/ComfyUI COMFYUI_FRONT_END=/tmp/front-end PYTHONPATH=/tmp/site
    python tests/acceptance/speed_memory.py --gpu 72
"""

from __future__ import annotations

import importlib.util
import io
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

LEFT_OUT = {".git", ".ci", ".github", "__pycache__", "tests", "tests-unit", "blueprints", "models", "output", "input", "openapi.yaml"}
NATIVE = 5 << 20  # bytes above which a package's library is left behind
PACKAGES = (
    "comfy_kitchen", "comfy_aimdo", "torchsde", "trampoline", "alembic", "mako", "simpleeval", "pydantic_settings", "dotenv", "websocket",
)  # fmt: skip
COMPILED = ("sqlalchemy", "greenlet", "blake3", "pydantic", "pydantic_core", "av", "diffusers")  # as wheels for that Python
PAGE = b"<!doctype html><title>no front end</title>"


def wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """An entry that is to be carried, else nothing."""
    parts = Path(entry.name).parts
    inside = parts[0] == "ComfyUI" and len(parts) == 2
    if "__pycache__" in parts or (inside and parts[1] in LEFT_OUT):
        return None
    return None if entry.name.endswith(".so") and entry.size > NATIVE else entry


def pack(target: Path, comfyui: Path) -> None:
    """Writes the archive."""
    with tarfile.open(target, "w:gz") as archive:
        archive.add(comfyui, "ComfyUI", filter=wanted)
        page = tarfile.TarInfo("front-end/index.html")
        page.size = len(PAGE)
        archive.addfile(page, io.BytesIO(PAGE))
        for name in PACKAGES:
            found = importlib.util.find_spec(name)
            assert found, f"{name} is not installed here"
            package = Path(next(iter(found.submodule_search_locations or [str(found.origin)])))
            archive.add(package, f"site/{package.name}", filter=wanted)


def main() -> None:
    from tests.conftest import find_comfyui

    comfyui, target = find_comfyui(), Path(sys.argv[1])
    assert comfyui is not None, "no ComfyUI here: set COMFYUI_PATH to its folder"
    pack(target, comfyui)
    print(f"{target}: {target.stat().st_size / (1 << 20):.1f} MiB; to be installed there: {', '.join(COMPILED)}")


if __name__ == "__main__":
    main()
