"""Train in a real ComfyUI with its default flags on a card: steps beside those measured here, and what runs leave in memory.

COMFYUI_FRONT_END names a folder with an index.html for machines without ComfyUI's front end, which none of this looks at.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from tests.acceptance.lines import ROOT, Check, at_most
from tests.benchmarks.caps import ROWS, capped
from tests.benchmarks.full_size import Size, model, random_model, told
from tests.benchmarks.settings import FP8, choices_of, words_of
from tests.benchmarks.training import Measured, Work, measured, ours

if TYPE_CHECKING:
    import torch

    from trainer.memory.choices import Choices

STEPS, COUNTED = 7, 4  # trained, of which the last ones are timed
ALIKE, VRAM, HOST = 0.05, 200, 0.02  # of seconds; MiB; share of the host memory
RUNS, RUN_STEPS = 3, 20
IDLE = 3.0  # seconds after a run before memory is looked at
LIMIT = 400.0  # seconds for one prompt
MIB = 1 << 20
# The work of lines 12 and 22; the last is GB that it must fit into, 0: all.
CASES = ((Work("Wan 2.1 14B", (33, 480, 832)), FP8, 0), (ROWS[2].work, "fp8 products compiled full swap 0.8", ROWS[2].gb))


@contextmanager
def server_on(device: torch.device) -> Iterator[tuple[Any, Any]]:
    """A ComfyUI that computes on the device, and a client of it."""
    from tests.conftest import find_comfyui
    from tests.host.comfy_server import ComfyServer

    found, front_end = find_comfyui(), os.environ.get("COMFYUI_FRONT_END")
    assert found is not None
    with tempfile.TemporaryDirectory() as folder:
        extra = ["--front-end-root", front_end] if front_end else []
        server = ComfyServer(found, ROOT, Path(folder), *extra, on_card=device.type == "cuda")
        try:
            server.wait_until_up()
            client = server.client()
            yield server, client
            client.close()
        finally:
            server.stop()


def steps_by_train(device: torch.device, work: Work, words: str, gb: int) -> list[Check]:
    """Seconds a step by Train over those of the same choices measured in this process."""
    choices = choices_of(words)
    if device.type == "cpu":
        work, choices = replace(work, small=True), replace(choices, weights="unquantized", compile=False, fp8_products=False)
    own = _here(work, choices, gb, device)
    name = f"{work}, {words_of(choices)}{f', fit into {gb} GB' * bool(gb)}"
    print(f"  {name}: here {own}", flush=True)
    with server_on(device) as (server, client):
        write_model(work, server.folder / "models/diffusers/full", device)
        write_clips(server.folder / "input/clips", work.shape, work.batch)
        seconds = step_seconds(trained(client, training_graph(work, choices, gb)))
    print(f"  by Train {seconds:.2f} s/step", flush=True)
    return [at_most(f"{name}: s/step by Train over ours here, less 1", seconds / own.seconds - 1, ALIKE, "+.3f")]


def _here(work: Work, choices: Choices, gb: int, device: torch.device) -> Measured:
    with capped(device, gb - 1.0 if gb else 0.0):
        return measured(lambda: ours(work, choices, device), device, steps=COUNTED)


def memory_after_runs(device: torch.device) -> list[Check]:
    """The demo model trained by Train three times, as new runs; memory of card and host after each."""
    card, host = [], []
    with server_on(device) as (server, client):
        for number in range(RUNS):
            steps = 2 if device.type == "cpu" else RUN_STEPS
            events = trained(client, demo_graph(f"run-{number}", steps))
            assert sum(event["type"] == "step" for event in events) == steps, events
            time.sleep(IDLE)
            card.append(card_mib(device))
            host.append(resident_mib(server.process.pid))
            print(f"  after run {number + 1}: card {card[-1]} MiB, host {host[-1]:.0f} MiB", flush=True)
    return [
        at_most("card memory after the last run over that after the first, MiB", max(card) - card[0], VRAM, "d"),
        at_most("host memory after the last run over that after the first, less 1", host[-1] / host[0] - 1, HOST, "+.3f"),
    ]


def trained(client: Any, graph: dict[str, Any]) -> list[dict[str, Any]]:
    """Queues a graph and gives our events of it; raises AssertionError with ComfyUI's own errors."""
    from tests.host.comfy_server import errors

    prompt = client.queue(graph)
    failed = errors(client.finish(prompt, LIMIT))
    assert not failed, str(failed)[:2000]
    return client.events(prompt)


def step_seconds(events: list[dict[str, Any]]) -> float:
    """The median time between the ends of the last steps."""
    ends = [event["time"] for event in events if event["type"] == "step"]
    return median(later - earlier for earlier, later in zip(ends[-COUNTED - 1 : -1], ends[-COUNTED:], strict=True))


def write_model(work: Work, folder: Path, device: torch.device) -> None:
    """The model of a piece of work as a diffusers folder: the transformer of full size, random, in bf16; its other parts tiny."""
    import torch

    from tests.tiny.wan import write_tiny_wan
    from trainer.models import open_model

    full = model(work.model, work.small)
    write_tiny_wan(folder, text_dim=full.transformer["text_dim"])
    kind, host = open_model(folder).transformer_class, torch.device("cpu")
    made: Any = random_model(kind, full.transformer, torch.bfloat16, device, host)
    shutil.rmtree(folder / "transformer")  # the tiny one
    made.save_pretrained(folder / "transformer")


def write_clips(folder: Path, size: Size, count: int) -> None:
    """Captioned clips of moving noise at the size that is trained."""
    import torch

    from trainer.video import write_mp4

    frames, height, width = size
    folder.mkdir(parents=True)
    for index in range(count):
        noise = torch.randint(0, 256, (1, height, width, 3), generator=torch.Generator().manual_seed(index), dtype=torch.uint8)
        write_mp4(torch.cat([noise.roll(frame, dims=2) for frame in range(frames)]), folder / f"{index}.mp4", 16)
        (folder / f"{index}.txt").write_text(f"pattern {index} moving", encoding="utf-8")


def node(kind: str, **inputs: Any) -> dict[str, Any]:
    """A node in the form that /prompt takes."""
    return {"class_type": kind, "inputs": inputs}


def training_graph(work: Work, choices: Choices, gb: int) -> dict[str, Any]:
    """The full-size model on its clips by Train, every choice set by its widget."""
    settings = {
        "weights": choices.weights, "layer_offload_fraction": choices.offload, "gradient_checkpointing": choices.checkpointing,
        "compile": "on" if choices.compile else "off", "fp8_products": "on" if choices.fp8_products else "off", "fit_into": float(gb),
    }  # fmt: skip
    return {
        "model": node("VideoTrainerLoadModel", source="full", path=""),
        "clips": node("VideoTrainerVideoFolder", folder="clips"),
        "buckets": node("VideoTrainerFrameBuckets", dataset=["clips", 0], sizes=told(work.shape)),
        "lora": node("VideoTrainerLoRASettings", rank=work.rank, continue_from="none"),
        "samples": node("VideoTrainerSamplePrompts", prompts="a pattern", every=0),
        "train": node(
            "VideoTrainerTrain", model=["model", 0], dataset=["buckets", 0], adapter=["lora", 0], samples=["samples", 0], name="full",
            steps=STEPS, batch_size=work.batch, save_every=1000, dtype="bf16", **settings,
        ),
    }  # fmt: skip


def demo_graph(name: str, steps: int) -> dict[str, Any]:
    """The demo by Train, with a sample video at its end."""
    return {
        "model": node("VideoTrainerDemoModel"),
        "clips": node("VideoTrainerDemoClips"),
        "buckets": node("VideoTrainerFrameBuckets", dataset=["clips", 0], sizes="17x64x64"),
        "lora": node("VideoTrainerLoRASettings", rank=8, continue_from="none"),
        "samples": node("VideoTrainerSamplePrompts", prompts="a zorp", every=steps, steps=4),
        "train": node(
            "VideoTrainerTrain", model=["model", 0], dataset=["buckets", 0], adapter=["lora", 0], samples=["samples", 0], name=name,
            steps=steps, batch_size=4, save_every=1000,
        ),
    }  # fmt: skip


def card_mib(device: torch.device) -> int:
    """MiB of the card that all programs hold, by the driver; 0 on a CPU."""
    if device.type != "cuda":
        return 0
    import torch

    card = f"GPU-{torch.cuda.get_device_properties(device).uuid}"  # not its index: CUDA_VISIBLE_DEVICES counts anew
    asked = ["nvidia-smi", f"--id={card}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)


def resident_mib(process: int) -> float:
    """MiB of host memory that a process holds."""
    import psutil

    return psutil.Process(process).memory_info().rss / MIB
