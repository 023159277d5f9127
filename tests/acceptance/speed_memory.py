"""Issue 5, "Must show": each line of it, measured.

    python tests/acceptance/speed_memory.py [--gpu] [--small] [line ...]

Without --gpu: line 8, and of line 6 what a CPU can show. With --gpu each line is alone under 8 minutes, so those of several models are
split: 11 and on are line 1 by model, 21 and on line 2 by row, 51 to 53 line 5, 61 and 62 line 6, 71 to 73 line 7. --small runs the
GPU lines' own code on a CPU with models of two layers, whose figures mean nothing.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.acceptance.lines import Check, Lines, Skipped, at_least, at_most, main, passed_tests  # noqa: E402
from tests.benchmarks.caps import ROWS, Result  # noqa: E402
from tests.benchmarks.settings import AUTO, BF16, PLAIN  # noqa: E402
from tests.benchmarks.training import Work, traced_only  # noqa: E402

if TYPE_CHECKING:
    import torch

    from tests.benchmarks.parity_model import Plan
    from tests.benchmarks.step import Row

SMALL = "--small" in sys.argv
WAN = "Wan 2.1 14B"
SPEEDS: dict[int, tuple[Work, float, float]] = {  # line -> the work, times plain's speed asked for, the aim
    11: (Work(WAN, (81, 480, 832)), 1.6, 1.8),
    12: (Work(WAN, (33, 480, 832)), 1.75, 2.0),
    13: (Work("HunyuanVideo", (49, 512, 768)), 1.5, 1.5),
    14: (Work("FramePack"), 1.5, 1.5),
    15: (Work("CogVideoX-5B"), 1.3, 1.3),
    16: (Work("LTX-Video 2B"), 1.3, 1.3),
    17: (Work("Wan 2.1 1.3B"), 1.3, 1.3),
}
UNQUANTIZED, QUANTIZED = f"{AUTO} bf16", f"{AUTO} fp8"
WITHOUT_FP8, UTILISATION = 1.4, 0.45  # of lines 11 and 12; plain's at 81 frames
CAP_AIM = 1.25
SWAP, PEAK, TIME = 1.10, 0.08, 0.20
FEWEST_SETTINGS = 12
COSINES = {"fp8": 0.99, "fp8 products": 0.99, "int8": 0.99, "nf4": 0.95}
LOSSES = {"fp8": 0.02, "fp8 products": 0.02, "int8": 0.02}
LEARNT = 0.95  # of the loss without a LoRA: runs that learned less are alike for nothing
NF4_LOSS = 0.05  # on a model of 1.4 G weights: the demo's 3.4 M leave no room for 4 bits, whose rounding alone raises its loss by 18 %
OOM_STEP, OOM_STEPS, SAME_LOSS = 5, 8, 1e-3
OUT = Path(os.environ.get("OUT") or tempfile.gettempdir())  # for the picture of line 52


def place() -> torch.device:
    """The card, with --small the CPU."""
    import torch

    if not SMALL and not torch.cuda.is_available():
        raise Skipped("no CUDA device")
    device = torch.device("cpu" if SMALL else "cuda:0")
    if device.type == "cuda":
        print(f"  {torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    return device


def speed(number: int) -> list[Check]:
    """A model's step in bf16 and with fp8, as the planner has them on this card, beside the plain step."""
    from dataclasses import replace

    from tests.benchmarks.step import rows

    device, (work, bar, aim) = place(), SPEEDS[number]
    settings = (PLAIN, UNQUANTIZED, QUANTIZED)
    found = {row.asked: row for row in rows(replace(work, small=SMALL), settings, device)}
    checks = [_ran(f"{work}, {setting}", setting in found) for setting in settings]
    if PLAIN not in found:
        return checks
    ratios = {setting: row.ratio for setting, row in found.items() if setting != PLAIN}
    if ratios:
        best = max(ratios, key=lambda setting: ratios[setting])
        checks.append(at_least(f"{work}: times as fast as plain, {found[best].setting} (aim {aim:g})", ratios[best], bar, ".2f"))
    if work.model == WAN:
        checks += _of_wan(number, work, found)
    return checks


def _of_wan(number: int, work: Work, found: dict[str, Row]) -> list[Check]:
    checks = [at_least(f"{work}: without fp8", found[UNQUANTIZED].ratio, WITHOUT_FP8, ".2f")] if UNQUANTIZED in found else []
    if number == 11:
        checks.append(at_least("plain's own utilisation, else the line is void", found[PLAIN].utilisation, UTILISATION, ".2f"))
    return checks


def _ran(what: str, done: bool) -> Check:
    return Check(what, "ran" if done else "failed, see above", "runs", done)


def under_cap(number: int) -> list[Check]:
    """A row under its cap, its time beside that without."""
    from tests.benchmarks.caps import result

    found: Result = result(number, place())
    print(f"  {found}".replace("\n", "\n  "), flush=True)
    checks = []
    for words, own in found.under_cap.items():
        if isinstance(own, str):
            checks.append(Check(f"{found.row}, {words}", own, "trains", False))
            continue
        down = " after stepping down" if any("ran out" in notice for notice in own.notices) else ""
        figure = f"{own.seconds:.2f} s/step, {found.ratio(words):.2f} times no cap (aim {CAP_AIM}){down}"
        checks.append(Check(f"{found.row}, {words}", figure, "trains", True))
        if not SMALL:
            checks.append(at_most("  GiB reserved at the peak", own.reserved_gib, found.row.cap, ".2f"))
    return checks


def block_swap() -> list[Check]:
    """Three quarters of the blocks on the host: their time, and losses to the bit."""
    from tests.benchmarks.offload import SHARE, bandwidth, set_repeatable, swap

    set_repeatable()
    device = place()
    print(
        "  " + ", ".join(f"copies {kind} {rate:.1f} GB/s" for kind, rate in bandwidth(device, (1 << 30) >> 4 * SMALL).items()), flush=True
    )
    found = swap("bf16 eager full" if SMALL else BF16, SHARE, device, SMALL)
    print(found, flush=True)
    return [
        at_most("block swap of 30 of 40 blocks over none, s/step", found.ratio, SWAP, ".3f"),
        Check("losses in deterministic mode", f"{found.losses_swapped}", f"{found.losses_without}", found.identical),
    ]


def planner() -> list[Check]:
    """Predicted against measured."""
    from tests.benchmarks.plan import table

    found = table(place(), (4, 9) if SMALL else ())
    checks = [at_least("settings measured", len(found), FEWEST_SETTINGS, "d")]
    for beside in found:
        checks.append(at_most(f"peak of setting {beside.number}, off by", beside.peak_error, PEAK, ".1%"))
        checks.append(at_most(f"step of setting {beside.number}, off by", beside.time_error, TIME, ".1%"))
    return checks


def likeness() -> list[Check]:
    """LoRA gradients on a model trained in full, by form."""
    from tests.benchmarks import loss_parity

    plan, state = trained_in_full()
    found = loss_parity.gradients(plan, state, place(), clips=2 if SMALL else loss_parity.CLIPS)
    return [at_least(f"cosine of LoRA gradients, {form} beside bf16", found[form].cosine, bar, ".4f") for form, bar in COSINES.items()]


def tuned_on_nf4() -> list[Check]:
    """A LoRA's run on nf4 beside one on bf16, on the same model."""
    from tests.benchmarks import loss_parity

    plan, state = trained_in_full()
    runs = loss_parity.tuning(plan, state, place(), *((3, 1) if SMALL else ()))
    apart = runs["nf4"].after / runs[loss_parity.BASE].after - 1
    learnt = runs[loss_parity.BASE].after / runs[loss_parity.BASE].before
    return [
        at_most("held-out loss of the LoRA on bf16 over that without", learnt, LEARNT, ".3f"),
        at_most("held-out loss, nf4 off bf16's", abs(apart), NF4_LOSS, ".2%"),
    ]


def trained_in_full() -> tuple[Plan, Path]:
    """The model of lines 51 and 53, and the folder that keeps its weights from one to the other."""
    from tests.benchmarks import loss_parity, parity_model

    return (parity_model.SMALL, loss_parity.STATE / "small") if SMALL else (parity_model.Plan(), loss_parity.STATE)


def demo_runs() -> list[Check]:
    """The demo's LoRA on each form: held-out loss, and the curves."""
    from tests.benchmarks import loss_parity

    steps, scenes = (3, 1) if SMALL else (loss_parity.STEPS, loss_parity.SCENES)
    with tempfile.TemporaryDirectory() as folder:
        found = loss_parity.runs(Path(folder), place(), steps=steps, scenes=scenes)
        picture = (Path(folder) / "curves.png").read_bytes()
    (OUT / "loss-parity.png").write_bytes(picture)
    base = found[loss_parity.BASE].after
    checks = [at_most(f"held-out loss, {form} off bf16's", abs(found[form].after / base - 1), bar, ".2%") for form, bar in LOSSES.items()]
    print(f"  nf4, without a bar: {found['nf4'].after / base - 1:+.2%}", flush=True)
    return [*checks, Check("curves", str(OUT / "loss-parity.png"), "a picture", picture.startswith(b"\x89PNG"))]


def out_of_memory() -> list[Check]:
    """Memory that runs out at step 5 of a run on the card, by an allocation that no card can serve."""
    import torch

    from trainer.demo.clips import write_demo_clips
    from trainer.demo.command import demo_job
    from trainer.demo.model import FOLDER
    from trainer.events import read_events
    from trainer.objectives.flow_matching import FlowMatching
    from trainer.run import Places, run

    device, loss, calls = place(), FlowMatching.loss, [0]

    def runs_out(self: Any, *given: Any) -> Any:
        calls[0] += 1
        if calls[0] == OOM_STEP:
            if device.type == "cpu":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate more than there is.")
            torch.empty(1 << 45, dtype=torch.uint8, device=device)
        return loss(self, *given)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_demo_clips(folder / "clips", 4)
        job = demo_job(FOLDER, folder / "clips", OOM_STEPS, device.type).overridden(["samples.every=0"])
        whole = run(job, Places.under(folder / "whole"))
        FlowMatching.loss = runs_out  # type: ignore[method-assign]
        try:
            short = run(job, Places.under(folder / "short"))
        finally:
            FlowMatching.loss = loss  # type: ignore[method-assign]
        notices = [
            str(e["text"]) for e in read_events(short.folder / "events.jsonl") if e["type"] == "notice" and "ran out" in str(e["text"])
        ]
    worst = max(abs(a / b - 1) for a, b in zip(short.losses, whole.losses, strict=True))
    return [
        Check("steps done", str(len(short.losses)), str(OOM_STEPS), len(short.losses) == OOM_STEPS),
        Check("told once", "; ".join(notices) or "nothing", "one notch down", len(notices) == 1),
        at_most("losses beside those of a run that had room, off by", worst, SAME_LOSS, ".1e"),
    ]


def shapes() -> list[Check]:
    """Twelve sizes of clips through compiled blocks."""
    from tests.benchmarks.bucket_shapes import counted

    found = counted(place())
    print(f"  {found}", flush=True)
    return [
        at_least("shapes", found.shapes, 12, "d"),
        at_most("graph breaks", found.breaks, 0, "d"),
        Check("functions compiled, none given up", str(found), "no eager fallback", not found.fell_back),
    ]


def in_comfyui(part: Callable[..., list[Check]]) -> list[Check]:
    """Train in a real ComfyUI on the card."""
    from tests.conftest import find_comfyui

    if find_comfyui() is None:
        raise Skipped("no ComfyUI here: set COMFYUI_PATH to its folder")
    return part(place())


def trained_in_comfyui(case: int) -> list[Check]:
    """Line 12 or 22 by Train, beside the same steps here."""
    from tests.acceptance.comfyui_on_card import CASES, steps_by_train

    work, words, gb = CASES[case]
    return in_comfyui(partial(steps_by_train, work=work, words=words, gb=gb))


def memory_in_comfyui() -> list[Check]:
    """What three runs by Train leave behind."""
    from tests.acceptance.comfyui_on_card import memory_after_runs

    return in_comfyui(memory_after_runs)


def on_cpu() -> list[Check]:
    """All of it at tiny size."""
    files = sorted(str(file.relative_to(ROOT)) for file in (ROOT / "tests/memory").glob("test_*.py"))
    named = ("tests/test_frozen.py", "tests/test_step.py", "tests/test_components.py", "tests/test_experts.py")
    return [passed_tests(file) for file in (*files, *named, "tests/benchmarks")]


def shortage_on_cpu() -> list[Check]:
    """A shortage of memory at step 5, and compiled blocks without breaks, on the CPU."""
    return [passed_tests("tests/memory/test_stepping_down.py"), passed_tests("tests/memory/test_assembly.py", "-k", "compiles")]


LINES: Lines = {6: ("Out of memory, and compiling, on a CPU", shortage_on_cpu), 8: ("On a CPU at tiny size", on_cpu)}
ON_GPU: Lines = {number: (f"Speed: {work}", partial(speed, number)) for number, (work, _, _) in SPEEDS.items()}
ON_GPU |= {20 + number: (f"Under a cap: {row}", partial(under_cap, number)) for number, row in ROWS.items()}
ON_GPU |= {
    3: ("Block swap", block_swap),
    4: ("The planner", planner),
    51: ("Gradients on quantised weights", likeness),
    52: ("The demo's runs on quantised weights", demo_runs),
    53: ("A LoRA's run on nf4", tuned_on_nf4),
    61: ("Out of memory at step 5", out_of_memory),
    62: ("Twelve shapes without falling back", shapes),
    71: ("Steps by Train in ComfyUI", partial(trained_in_comfyui, 0)),
    72: ("Steps by Train in ComfyUI under a cap", partial(trained_in_comfyui, 1)),
    73: ("Memory after runs in ComfyUI", memory_in_comfyui),
}

if __name__ == "__main__":
    if SMALL:
        sys.argv += [] if "--gpu" in sys.argv else ["--gpu"]
    sys.argv = [word for word in sys.argv if word != "--small"]
    with traced_only() if SMALL else nullcontext():
        status = main(LINES, ON_GPU)
    sys.exit(status)
