"""Installs requirements.txt one line at a time, as ComfyUI-Manager does, into fresh ComfyUI environments.

Run by hand (each kind takes some minutes and 6 GB of disk, given back at the end):

    python tests/packaging/line_by_line.py [old new ahead headless] [--no-demo] [--keep]

Needs a ComfyUI (COMFYUI_PATH, or ~/comfy/ComfyUI) and a package index. Exits 1 if a kind fell short.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# What each environment holds besides ComfyUI's own requirements, before our lines are installed.
KINDS = {
    "old": ("transformers==4.57.6", "huggingface_hub==0.36.2"),
    "new": (),
    "ahead": ("diffusers>=0.40",),
    "headless": ("opencv-python-headless",),
}


@dataclass
class Result:
    """What one environment looked like before and after; empty `problems` means that all is well."""

    kind: str
    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.problems

    @property
    def moved(self) -> dict[str, tuple[str, str]]:
        """Packages that were there and have another version now, or are gone."""
        return {name: (old, self.after.get(name, "gone")) for name, old in self.before.items() if self.after.get(name) != old}

    @property
    def added(self) -> dict[str, str]:
        return {name: version for name, version in self.after.items() if name not in self.before}

    def report(self) -> str:
        """A few lines for people: figures first, problems last."""
        lines = [f"{self.kind}: " + ", ".join(f"{step} {value:.0f} s" for step, value in self.seconds.items())]
        kept = ("torch", "torchvision", "transformers", "huggingface-hub", "numpy")
        lines.append("  there: " + ", ".join(f"{name} {self.before[name]}" for name in kept if name in self.before))
        lines.append("  added: " + (", ".join(f"{name} {version}" for name, version in sorted(self.added.items())) or "nothing"))
        lines.append("  moved: " + (", ".join(f"{name} {old} -> {new}" for name, (old, new) in sorted(self.moved.items())) or "nothing"))
        return "\n".join(lines + [f"  short: {problem}" for problem in self.problems])


def requirement_lines(path: Path) -> list[str]:
    """The lines as Manager reads them: comments cut off, blank lines dropped."""
    lines = (line.split("#")[0].strip() for line in path.read_text(encoding="ascii").splitlines())
    return [line for line in lines if line]


def comfyui_path() -> Path | None:
    """The folder of a ComfyUI on this machine, or None."""
    for folder in (os.environ.get("COMFYUI_PATH"), Path.home() / "comfy" / "ComfyUI"):
        if folder and (Path(folder) / "main.py").is_file():
            return Path(folder)
    return None


class Environment:
    """One venv with ComfyUI's requirements in it."""

    def __init__(self, folder: Path, comfyui: Path) -> None:
        self.folder, self.comfyui = folder, comfyui
        self.python = folder / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def run(self, *words: str | Path, limit: float = 1800) -> tuple[int, str]:
        """Runs this environment's Python; returns the exit status and all that it printed."""
        clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        done = subprocess.run(
            [self.python, *words], cwd=self.folder, env=clean, timeout=limit, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
        )  # fmt: skip
        return done.returncode, done.stdout

    def pip(self, *words: str | Path) -> None:
        status, text = self.run("-m", "pip", "-qq", *words)
        if status:
            raise RuntimeError(f"pip {' '.join(map(str, words))}: {text[-2000:]}")

    def create(self, extra: tuple[str, ...]) -> None:
        """Makes the venv: torch, then ComfyUI's requirements together with `extra`."""
        subprocess.run([sys.executable, "-m", "venv", self.folder / "venv"], check=True)
        self.pip("install", *os.environ.get("TORCH", "torch torchvision").split())
        self.pip("install", "-r", self.comfyui / "requirements.txt", *extra)

    def packages(self) -> dict[str, str]:
        _, text = self.run("-m", "pip", "list", "--format=freeze")
        return dict(line.split("==", 1) for line in text.lower().replace("_", "-").splitlines() if "==" in line)

    def conflicts(self) -> set[str]:
        return {line for line in self.run("-m", "pip", "check")[1].splitlines() if " has requirement " in line or " requires " in line}

    def start_comfyui(self, pack: Path | None) -> str:
        """Starts ComfyUI on the CPU until its nodes are loaded; returns what went wrong, or nothing."""
        base = self.folder / "base"
        (base / "custom_nodes").mkdir(parents=True, exist_ok=True)
        if pack:
            (base / "custom_nodes" / "video-trainer").symlink_to(pack, target_is_directory=True)
        words = ("--cpu", "--quick-test-for-ci", "--base-directory", base, "--database-url", "sqlite:///:memory:")
        status, text = self.run(self.comfyui / "main.py", *words, limit=300)
        if status or "IMPORT FAILED" in text or (pack and "video-trainer" not in text):
            return f"exit status {status}: {text[-1500:]}"
        return ""


def install_lines(place: Environment, result: Result) -> None:
    """Manager's own loop; notes each line that fails or moves torch."""
    for line in requirement_lines(ROOT / "requirements.txt"):
        status, text = place.run("-m", "pip", "install", line)
        if status:
            result.problems.append(f"pip install '{line}': {text[-500:]}")
    result.after = place.packages()
    for name in ("torch", "torchvision", "torchaudio"):
        if result.before.get(name) != result.after.get(name):
            result.problems.append(f"{name} moved from {result.before.get(name)} to {result.after.get(name)}")


def check(kind: str, demo: bool = True, keep: bool = False) -> Result:
    """Tries one kind of environment from nothing; `demo` also trains the demo in it. Raises RuntimeError if it cannot be built."""
    result, comfyui = Result(kind), comfyui_path()
    if comfyui is None:
        raise RuntimeError("no ComfyUI here: set COMFYUI_PATH to its folder")
    folder = Path(tempfile.mkdtemp(prefix=f"lines-{kind}-"))
    place, clock = Environment(folder, comfyui), time.monotonic()

    def lap(step: str) -> None:
        nonlocal clock
        result.seconds[step], clock = time.monotonic() - clock, time.monotonic()

    try:
        place.create(KINDS[kind])
        result.before, known = place.packages(), place.conflicts()
        if wrong := place.start_comfyui(None):
            raise RuntimeError(f"ComfyUI did not start before anything was installed: {wrong}")
        lap("set-up")
        install_lines(place, result)
        lap("our lines")
        result.problems += sorted(place.conflicts() - known)
        if wrong := place.start_comfyui(ROOT):
            result.problems.append(f"ComfyUI does not start: {wrong}")
        lap("start")
        if demo:
            status, text = place.run(ROOT / "trainer" / "__main__.py", "demo")
            if status:
                result.problems.append(f"the demo ended with {status}: {text[-1500:]}")
            lap("demo")
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=["old", "new"], help=f"any of: {', '.join(KINDS)}")
    parser.add_argument("--no-demo", action="store_true", help="do not train the demo")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    given = parser.parse_args()
    results = []
    for kind in given.kinds:
        results.append(check(kind, demo=not given.no_demo, keep=given.keep))
        print(results[-1].report(), flush=True)
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
