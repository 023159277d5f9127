"""The demo: train a LoRA on a thing the shipped model has never seen, show it before and after, score it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..console import Console
from ..job import TrainingJob
from ..run import Places, run
from . import world
from .clips import write_demo_clips
from .model import FOLDER
from .report import write_report
from .scoring import CIRCLE, Examiner, held_out, score

if TYPE_CHECKING:
    import numpy as np

STEPS = 300
HELD_OUT = 10  # prompts scored in each group
PROMPTS = ("a zorp turning on a white background", "a zorp moving left on a pink background", CIRCLE)
WORKFLOW_PROMPTS = "\n".join(f"{prompt} | | | 1" for prompt in PROMPTS)  # as the Sample Prompts node of the demo workflow has them


def demo_job(model: Path, clips: Path, steps: int = STEPS, device: str = "auto") -> TrainingJob:
    """The demo's settings, which its workflow shows on the canvas too."""
    frames, height, width = world.FRAMES, world.SIZE, world.SIZE
    return TrainingJob.parse(
        {
            "model": {"source": str(model)},
            "dataset": {
                "sources": [{"kind": "folder", "folder": str(clips)}],
                "buckets": [{"frames": frames, "height": height, "width": width}],
            },
            "captions": {"dropout": 0.0},
            "adapter": {"rank": 8},
            "objective": {"timesteps": "uniform", "shift": 1.5},
            "optimizer": {"learning_rate": 1.5e-3, "warmup": 10, "schedule": "cosine"},
            "schedule": {"steps": steps, "batch_size": 4, "seed": 1},
            "memory": {"gradient_checkpointing": "off"},
            "samples": {"every": max(steps // 3, 1), "prompts": [{"prompt": prompt, "seed": 1} for prompt in PROMPTS]},
            "compute": {"device": device},
            "output": {"name": "zorp", "save_every": max(steps // 3, 1)},
        }
    )


def run_demo(places: Places, steps: int, device: str) -> int:
    """Trains, scores and reports; 0 when done."""
    clips = places.runs / "demo clips"
    write_demo_clips(clips)
    start = time.perf_counter()
    with Console(places.runs) as console:
        result = run(demo_job(FOLDER, clips, steps or STEPS, device), places, console)
    seconds = time.perf_counter() - start
    print(f"training with its samples: {seconds:.0f} s", file=sys.stderr)
    print(f"scoring {3 * HELD_OUT} samples", file=sys.stderr)
    examiner = Examiner(result.model, result.lora, device)
    scores = score(examiner, HELD_OUT)
    scenes = held_out(6)
    base, tuned = (examiner.loss(scenes, strength) for strength in (0.0, 1.0))
    figures: dict[str, object] = {
        "training_seconds": round(seconds, 1),
        "held_out_loss": {"before": base, "after": tuned},
        "scores": scores.as_dict(),
    }
    folder = write_report(result.folder / "report", result.losses, _rows(examiner), figures)
    print(f"{scores}\nloss on held-out zorps: {base:.3f} before, {tuned:.3f} after ({tuned / base - 1:+.0%})")
    print(f"LoRA:   {result.lora}\nreport: {folder}")
    return 0


def _rows(examiner: Examiner) -> list[tuple[str, np.ndarray, np.ndarray]]:
    prompts, seeds = list(PROMPTS), [1] * len(PROMPTS)
    before, after = (examiner.draw(prompts, seeds, strength) for strength in (0.0, 1.0))
    return list(zip(prompts, before, after, strict=True))
