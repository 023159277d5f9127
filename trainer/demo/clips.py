"""Writes short real videos of the concept with caption files, as a user's folder of clips would look."""

from __future__ import annotations

import random
from pathlib import Path

from ..video import write_mp4
from .world import BACKGROUNDS, FPS, MOTIONS, Scene, caption, random_concept, render

TRAINING_SEED = 11
HARDEST = ("turn", "grow", "turn", "shrink")


def concept_scenes(count: int = 12, seed: int = TRAINING_SEED) -> list[Scene]:
    """Zorps with every motion and every background in turn; of the motions, those that a LoRA finds hardest come twice."""
    generator = random.Random(seed)
    motions, grounds = [*MOTIONS, *HARDEST], list(BACKGROUNDS)
    return [random_concept(generator, motions[n % len(motions)], grounds[(n + n // len(grounds)) % len(grounds)]) for n in range(count)]


def write_demo_clips(folder: Path, count: int = 12, seed: int = TRAINING_SEED) -> list[Path]:
    """Write `zorp-01.mp4`, ... with a .txt caption beside each; each 17 frames at 16 fps; same seed, same clips."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for index, scene in enumerate(concept_scenes(count, seed)):
        path = folder / f"zorp-{index + 1:02d}.mp4"
        write_mp4(render([scene])[0], path, FPS, crf=8, pixels="yuv444p")  # tiny pictures need all their colour
        path.with_suffix(".txt").write_text(caption(scene) + "\n", encoding="utf-8")
        paths.append(path)
    return paths
