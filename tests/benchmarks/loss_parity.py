"""What quantised weights do to training: `python tests/benchmarks/loss_parity.py [gradients|tuning|runs] [--small]`.

gradients: LoRA gradients on a transformer of Wan 1.3B's shapes that was first trained in full on the demo's world, each form beside
bf16 by the cosine of all gradients. Its weights are kept in the state folder, so that a second run goes on from there. tuning: a LoRA
of 150 steps on that transformer in bf16 and nf4, its loss on held-out clips beside bf16's. runs: the demo's LoRA of 300 steps on each
form, its loss on held-out clips beside bf16's, and the curves as a picture in the out folder.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.benchmarks.parity_model import SMALL, Examples, Plan, examples_of, trained, unseen  # noqa: E402
from tests.benchmarks.settings import choices_of  # noqa: E402
from tests.benchmarks.training import Heard, card_of  # noqa: E402

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

    from trainer.adapters.lora import Lora

BASE = "bf16"
FORMS = ("fp8", "fp8 products", "int8", "nf4")  # beside BASE
STEPS, SCENES = 300, 24  # of a run; held-out clips
TUNING, SHOWN, BATCH, RATE = 150, 256, 16, 2e-4  # steps of the tuning, the scenes that it sees
CLIPS, SIGMAS, RANK, START = 16, (0.3, 0.5, 0.7, 0.9), 32, 0.01  # of the gradients; START: deviation of the LoRA's up weights
STATE = Path(tempfile.gettempdir()) / "video-trainer-parity"


@dataclass(frozen=True)
class Likeness:
    """Gradients of a form beside bf16's: the cosine over all, and of the layer where it is least."""

    cosine: float
    least: float
    layer: str
    loss: float

    def __str__(self) -> str:
        return f"cosine {self.cosine:.4f}, least {self.least:.4f} ({self.layer}), loss {self.loss:.4f}"


def gradients(plan: Plan, state: Path, device: torch.device, forms: Sequence[str] = FORMS, clips: int = CLIPS) -> dict[str, Likeness]:
    """Each form's likeness to bf16; the last, "bf16 again", is bf16 beside itself."""
    weights = trained(state, plan, device)
    examples = examples_of(unseen(clips), device)
    base, loss = gradients_of(weights, plan, BASE, examples, device)
    print(f"  bf16: loss {loss:.4f}", flush=True)
    found = {}
    for form in (*forms, "bf16 again"):
        other, loss = gradients_of(weights, plan, form.removesuffix(" again"), examples, device)
        found[form] = likeness(base, other, loss)
        print(f"  {form}: {found[form]}", flush=True)
    return found


def gradients_of(
    weights: Mapping[str, Tensor], plan: Plan, form: str, examples: Examples, device: torch.device
) -> tuple[dict[str, Tensor], float]:
    """Gradients of a LoRA by layer on the weights in a form, over all noise levels, and the mean loss."""
    import torch

    from trainer.adapters.lora import NAME

    with adapted(weights, plan, form, "full", device) as (transformer, lora):
        generator = torch.Generator().manual_seed(1)
        for layer in lora.layers.values():
            up = layer.lora_B[NAME].weight.data
            up.copy_(START * torch.randn(up.shape, generator=generator))  # drawn on the CPU, so alike on any device
        losses = []
        for sigma in SIGMAS:
            loss = _loss(transformer, examples, sigma)
            loss.backward()
            losses.append(loss.item())
        found = {
            name: torch.cat([layer.lora_A[NAME].weight.grad.flatten(), layer.lora_B[NAME].weight.grad.flatten()]).cpu()
            for name, layer in lora.layers.items()
        }
    return found, sum(losses) / len(losses)


@contextmanager
def adapted(weights: Mapping[str, Tensor], plan: Plan, form: str, kept: str, device: torch.device) -> Iterator[tuple[Any, Lora]]:
    """The transformer in a form, in its place on the device, with a new LoRA that is trained; `kept` is the way of checkpointing."""
    from trainer.adapters.lora import Lora
    from trainer.demo.model import FOLDER
    from trainer.events import EventLog
    from trainer.job import AdapterSettings
    from trainer.memory.assembly import Assembly
    from trainer.models import open_model

    choices = choices_of(f"{form} eager {kept}")
    transformer = held(weights, plan, choices.weights, device)
    lora = Lora.attach(transformer, open_model(FOLDER).spec, AdapterSettings(rank=RANK), 0)
    lora.train(True)
    Assembly(transformer, choices, device, EventLog(Heard())).place()
    yield transformer, lora


def tuning(plan: Plan, state: Path, device: torch.device, steps: int = TUNING, scenes: int = SCENES) -> dict[str, Trained]:
    """A LoRA on bf16 and one on nf4, each judged on bf16 as it will be used; of nf4 also on the weights it was trained on."""
    weights = trained(state, plan, device)
    known = unseen(scenes + SHOWN)
    held_out, clips = examples_of(known[:scenes], device), examples_of(known[scenes:], device)
    found = {}
    with adapted(weights, plan, BASE, "off", device) as (exact, in_use):
        before = _mean_loss(exact, held_out)
        for form in (BASE, "nf4"):
            with adapted(weights, plan, form, "off", device) as (transformer, lora):
                losses = _tune(transformer, lora, clips, steps)
                own = _mean_loss(transformer, held_out)
                in_use.load(lora.weights(), form)
            found[form] = Trained(losses, before, _mean_loss(exact, held_out))
            change = found[form].after / found[BASE].after - 1
            print(f"  {form}: {found[form]}, {change:+.2%} of bf16's; on its own weights {own:.4f}", flush=True)
    return found


def _tune(transformer: Any, lora: Lora, clips: Examples, steps: int) -> list[float]:
    """Trains the LoRA on the clips, the same draws for every form; the loss of each step."""
    import torch

    optimizer = torch.optim.AdamW(lora.parameters(), RATE, fused=clips.latents.device.type == "cuda")
    generator, losses = torch.Generator().manual_seed(3), []
    for step in range(steps):
        chosen = torch.randint(len(clips.latents), (BATCH,), generator=generator)
        sigma = float(torch.rand((), generator=generator))
        loss = _loss(transformer, Examples(clips.latents[chosen], clips.texts[chosen]), sigma, seed=step)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def _mean_loss(transformer: Any, examples: Examples) -> float:
    import torch

    with torch.no_grad():
        return sum(_loss(transformer, examples, sigma, seed).item() for sigma in SIGMAS for seed in range(2)) / (2 * len(SIGMAS))


def held(weights: Mapping[str, Tensor], plan: Plan, form: str, device: torch.device) -> Any:
    """The transformer in bf16, but for what its class keeps in float32, its blocks' linear layers in a form."""
    import torch
    from diffusers import WanTransformer3DModel
    from torch import nn

    from tests.benchmarks.full_size import _quantized
    from trainer.memory.blocks import blocks_of

    transformer: Any = WanTransformer3DModel(**plan.config)
    transformer.load_state_dict(dict(weights))
    exact = set(transformer._keep_in_fp32_modules)
    for name, tensor in transformer.named_parameters():
        tensor.data = tensor.data.to(device, torch.float32 if exact & set(name.split(".")) else torch.bfloat16)
    for block in blocks_of(transformer).values():
        for path, layer in list(block.named_modules()):
            if form != "unquantized" and type(layer) is nn.Linear and layer.weight.dtype == torch.bfloat16:
                parent, _, place = path.rpartition(".")
                setattr(block.get_submodule(parent), place, _quantized(layer, form, torch.bfloat16))
    return transformer.requires_grad_(False).eval()


def _loss(transformer: Any, examples: Examples, sigma: float, seed: int = 2) -> Tensor:
    """At one noise level, of noise that the seed gives."""
    import torch

    clean = examples.latents
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(seed)).to(clean.device)
    time = torch.full((len(clean),), 1000 * sigma, device=clean.device)
    with torch.autocast(clean.device.type, torch.bfloat16):
        guess = transformer(torch.lerp(clean, noise, sigma), time, examples.texts, return_dict=False)[0]
    return (guess.float() - (noise - clean)).square().mean()


def likeness(base: Mapping[str, Tensor], other: Mapping[str, Tensor], loss: float) -> Likeness:
    """The cosine of all gradients at once, and the layer where it is least."""
    import torch

    def cosine(one: Tensor, two: Tensor) -> float:
        one, two = one.double(), two.double()
        return float(one @ two / (one.norm() * two.norm()))

    layers = {name: cosine(base[name], other[name]) for name in base}
    worst = min(layers, key=lambda name: layers[name])
    return Likeness(cosine(torch.cat(list(base.values())), torch.cat(list(other.values()))), layers[worst], worst, loss)


@dataclass(frozen=True)
class Trained:
    """A run on a form: the loss of each step, and that on held-out clips before and after."""

    losses: list[float]
    before: float
    after: float

    def __str__(self) -> str:
        return f"held-out loss {self.before:.4f} before, {self.after:.4f} after"


def runs(folder: Path, device: torch.device, forms: Sequence[str] = FORMS, steps: int = STEPS, scenes: int = SCENES) -> dict[str, Trained]:
    """The demo's LoRA on bf16 and each form, drawn as curves.png in the folder."""
    from trainer.demo.clips import write_demo_clips

    write_demo_clips(folder / "clips")
    found = {}
    for form in (BASE, *forms):
        found[form] = demo_run(folder, form, device, steps, scenes)
        change = found[form].after / found[BASE].after - 1
        print(f"  {form}: {found[form]}, {change:+.2%} of bf16's", flush=True)
    (folder / "curves.png").write_bytes(_png(curves({form: run.losses for form, run in found.items()})))
    return found


def demo_run(folder: Path, form: str, device: torch.device, steps: int, scenes: int) -> Trained:
    """One run by the trainer, without sample videos."""
    from trainer.demo.command import demo_job
    from trainer.demo.model import FOLDER
    from trainer.demo.scoring import Examiner, held_out
    from trainer.run import Places, run

    choices, changes = choices_of(f"{form} eager full"), ["samples.every=0", f"output.name={form.replace(' ', '-')}"]
    changes += [
        f"memory.weights={choices.weights}",
        f"compute.fp8_products={'on' if choices.fp8_products else 'off'}",
        "compute.compile=off",
    ]
    job = demo_job(FOLDER, folder / "clips", steps, device.type).overridden(changes)
    result = run(job, Places.under(folder / "output"))
    examiner = Examiner(result.model, result.lora, device.type)
    seen = held_out(scenes)
    before, after = (examiner.loss(seen, strength) for strength in (0.0, 1.0))
    return Trained(result.losses, before, after)


COLOURS = {"bf16": (30, 30, 30), "fp8": (30, 90, 180), "fp8 products": (0, 150, 136), "int8": (230, 120, 20), "nf4": (200, 40, 60)}


def curves(losses: Mapping[str, Sequence[float]]) -> np.ndarray:
    """The running mean of each run's loss over its steps, [H, W, 3] uint8 RGB."""
    import cv2
    import numpy as np

    from trainer.demo.report import CURVE, FAINT, PAPER, _text, smoothed

    (width, height), means = CURVE, {name: smoothed(list(values)) for name, values in losses.items()}
    left, top, right, bottom = 70, 50, width - 20, height - 40
    picture = np.full((height, width, 3), PAPER, np.uint8)
    low, high = min(map(min, means.values())), max(map(max, means.values()))
    for share in (0.0, 0.5, 1.0):
        y = round(bottom - share * (bottom - top))
        cv2.line(picture, (left, y), (right, y), FAINT, 1)
        _text(picture, f"{low + share * (high - low):.3f}", (8, y + 5))
    for number, (name, values) in enumerate(means.items()):
        x = left + np.arange(len(values)) * (right - left) / max(len(values) - 1, 1)
        y = bottom - (np.asarray(values) - low) / ((high - low) or 1.0) * (bottom - top)
        colour = COLOURS.get(name, (120, 120, 120))
        cv2.polylines(picture, [np.stack([x, y], 1).round().astype(np.int32)], False, colour, 2, cv2.LINE_AA)
        cv2.line(picture, (left + 160 * number, 38), (left + 160 * number + 24, 38), colour, 3)
        _text(picture, name, (left + 160 * number + 30, 43))
    _text(picture, "Training loss, running mean, by how the frozen weights are held", (left, 18))
    _text(picture, f"step {max(map(len, losses.values()))}", (right - 80, height - 14))
    return picture


def _png(picture: np.ndarray) -> bytes:
    import cv2

    return bytes(cv2.imencode(".png", picture[:, :, ::-1])[1])


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=["gradients", "tuning", "runs", []], help="default: all")
    parser.add_argument("--state", type=Path, default=STATE, help="keeps the weights that were trained in full")
    parser.add_argument("--out", type=Path, default=Path("output/parity"), help="for curves.png and the runs")
    parser.add_argument("--seconds", type=float, default=Plan().seconds, help="of training in full, at most")
    parser.add_argument("--small", action="store_true", help="on the CPU: two layers, a few steps")
    given = parser.parse_args()
    device = torch.device("cpu" if given.small else "cuda:0")
    print(f"{card_of(device)}, torch {torch.__version__}", flush=True)
    state, plan = (given.state / "small", SMALL) if given.small else (given.state, Plan(seconds=given.seconds))
    if "gradients" in (given.parts or ["gradients"]):
        gradients(plan, state, device, clips=2 if given.small else CLIPS)
    if "tuning" in (given.parts or ["tuning"]):
        tuning(plan, state, device, steps=3 if given.small else TUNING, scenes=1 if given.small else SCENES)
    if "runs" in (given.parts or ["runs"]):
        given.out.mkdir(parents=True, exist_ok=True)
        runs(given.out, device, steps=3 if given.small else STEPS, scenes=1 if given.small else SCENES)


if __name__ == "__main__":
    main()
