"""How an acceptance file says what it found: a line a bar, ok or short, and what was skipped."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Skipped(Exception):
    """A line cannot be run here; the text says why."""


@dataclass(frozen=True)
class Check:
    """One figure beside its bar."""

    what: str
    figure: str
    bar: str
    ok: bool

    def __str__(self) -> str:
        return f"  {'ok   ' if self.ok else 'SHORT'} {self.what}: {self.figure} (bar: {self.bar})"


def at_least(what: str, figure: float, bar: float, form: str = ".3g") -> Check:
    """A figure that must reach its bar."""
    return Check(what, format(figure, form), f">= {format(bar, form)}", figure >= bar)


def at_most(what: str, figure: float, bar: float, form: str = ".3g") -> Check:
    """A figure that must not exceed its bar."""
    return Check(what, format(figure, form), f"<= {format(bar, form)}", figure <= bar)


Line = Callable[[], list[Check]]


Lines = dict[int, tuple[str, Line]]


def main(lines: Lines, on_gpu: Lines | None = None) -> int:
    """Runs the chosen lines, or with --gpu those of `on_gpu`; 1 if any bar fell short or any line broke."""
    parser = argparse.ArgumentParser()
    parser.add_argument("only", nargs="*", type=int, help="numbers of the lines to run; default: all")
    if on_gpu:
        parser.add_argument("--gpu", action="store_const", const=on_gpu, help=f"the lines that need a card: {sorted(on_gpu)}")
    given = parser.parse_args()
    lines = getattr(given, "gpu", None) or lines
    chosen = given.only or sorted(lines)
    short, skipped = [], []
    for number in chosen:
        title, line = lines[number]
        print(f"{number}. {title}", flush=True)
        start = time.monotonic()
        try:
            checks = line()
        except Skipped as reason:
            print(f"  skipped: {reason}", flush=True)
            skipped.append(number)
            continue
        except Exception:
            traceback.print_exc()
            checks = [Check("the line itself", "broke", "runs", False)]
        for check in checks:
            print(check)
        print(f"  ({time.monotonic() - start:.0f} s)", flush=True)
        if not checks or not all(check.ok for check in checks):
            short.append(number)
    print(f"lines ok: {sorted(set(chosen) - set(short) - set(skipped))}, short: {short}, skipped: {skipped}")
    return 1 if short else 0


def passed_tests(*selection: str, seconds: float = 1800) -> Check:
    """Runs a selection of the tests; the figure is pytest's own closing line. Skipped tests fall short."""
    command = [sys.executable, "-m", "pytest", "-q", "-rs", *selection]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds)
    closing = [line for line in done.stdout.splitlines() if re.search(r"\d+ (passed|failed|skipped|error)", line)]
    if done.returncode:
        print(done.stdout[-6000:], done.stderr[-2000:], file=sys.stderr)
    figure = closing[-1].strip("= ") if closing else f"exit {done.returncode}"
    whole = done.returncode == 0 and "passed" in figure and "skipped" not in figure
    return Check(" ".join(selection), figure, "all pass, none skipped", whole)


@contextmanager
def clean_clone() -> Iterator[Path]:
    """A clone of HEAD in a folder of another name, without a venv."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "Video-Trainer.clone"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        yield clone


def make(target: str, folder: Path, seconds: float = 3600) -> tuple[int, str, float]:
    """Runs `make target`: exit status, what it printed, wall seconds."""
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    start = time.monotonic()
    done = subprocess.run(
        ["make", target], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds, env=environment
    )
    return done.returncode, done.stdout, time.monotonic() - start
