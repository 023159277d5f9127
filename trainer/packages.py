"""Packages that may be missing or broken: what is said of them, and how a broken optional one is kept out."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from .errors import Problem, UserError

REQUIRED = {  # module -> distribution
    "torch": "torch",
    "tqdm": "tqdm",
    "pydantic": "pydantic",
    "av": "av",
    "cv2": "opencv-python",
    "einops": "einops",
    "safetensors": "safetensors",
    "transformers": "transformers",
    "diffusers": "diffusers",
    "accelerate": "accelerate",
    "peft": "peft",
}
# Asked for only where they are needed: module -> requirement.
OPTIONAL = {
    "pyarrow": "pyarrow>=14",
    "scenedetect": "scenedetect>=0.6.4",
    "gguf": "gguf>=0.10",
    "pytorch_optimizer": "pytorch_optimizer>=4",
    "torchao": "torchao>=0.16",
    "flash_attn": "flash-attn>=2.6.3",
    "flash_attn_interface": "flash_attn_3 @ git+https://github.com/Dao-AILab/flash-attention.git#subdirectory=hopper",  # not on PyPI
    "sageattention": "sageattention",
}
BUILT = ("flash-attn", "flash_attn_3")  # that are built on the user's machine, with the torch that is there
PROBED = {"torchao": (0, 16), "bitsandbytes": (0, 43), "xformers": (0, 0)}  # optional ones that peft and diffusers import when present


REQUIREMENTS = Path(__file__).parent.parent / "requirements.txt"


def install_command(distribution: str) -> str:
    """The command that installs a distribution for the running interpreter, within the bounds of requirements.txt or its own.

    The bounds matter: the newest release of one package may break a ComfyUI that has older ones.
    """
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines() if REQUIREMENTS.is_file() else []
    wanted = [line for line in lines if re.split(r"[^\w.-]", line)[0] == distribution]
    requirement = re.split(r"(?:^|\s)#", (wanted or [distribution])[0])[0].strip()
    options = " --no-build-isolation" if re.split(r"[^\w.-]", requirement)[0] in BUILT else ""
    return f'"{sys.executable}" -m pip install{options} "{requirement}"'


def require(*modules: str) -> None:
    """Raises UserError naming each module (all required ones unless told) that does not import, with the command to install it."""
    problems = []
    for module in modules or REQUIRED:
        try:
            importlib.import_module(module)
        except Exception as error:  # a broken package may raise anything at import
            reason = "is not installed." if isinstance(error, ModuleNotFoundError) and error.name == module else f"is broken: {error}."
            problems.append(Problem(f"Python package {module}", reason, f"Run: {install_command({**REQUIRED, **OPTIONAL}[module])}"))
    if problems:
        raise UserError(problems)


def broken(module: str) -> str:
    """Why an installed optional module cannot be used, or "" if it can or is simply absent."""
    if (module in sys.modules and sys.modules[module] is None) or find_spec(module) is None:
        return ""
    needed = PROBED[module]
    try:
        version = metadata.version(module)
        importlib.import_module(module)
    except Exception as error:  # a broken package may raise anything at import
        return f"{module} does not import ({type(error).__name__}: {error})"
    parts = tuple(int("".join(filter(str.isdigit, part)) or 0) for part in version.split(".")[:2])
    return f"{module} {version} is older than {'.'.join(map(str, needed))}" if parts < needed else ""


@contextmanager
def without_broken() -> Iterator[list[str]]:
    """Hides broken optional packages from libraries that would fail on them; yields a line on each one hidden."""
    reasons = {module: reason for module in PROBED if (reason := broken(module))}
    kept = {module: sys.modules.get(module) for module in reasons}
    try:
        for module in reasons:
            sys.modules[module] = None  # type: ignore[assignment]  # import and find_spec then report it absent
        yield [
            f'{reason}; going on without it. To use it: "{sys.executable}" -m pip install -U {module}' for module, reason in reasons.items()
        ]
    finally:
        for module, loaded in kept.items():
            if loaded is None:
                sys.modules.pop(module, None)
            else:
                sys.modules[module] = loaded
