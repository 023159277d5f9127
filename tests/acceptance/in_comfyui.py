"""The lines of issue 2 that need a real ComfyUI and its front end."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.acceptance.lines import ROOT, Check, Skipped, at_least, at_most, passed_tests

PROMPT, CIRCLE, SHIFT, STEPS, GUIDANCE, SEED = "a zorp turning on a white background", "a red circle", 3.0, 20, 2.0, 42
SIZE = {"frames": 17, "height": 64, "width": 64}


def training_in_comfyui() -> list[Check]:
    """Nodes with tooltips, training through /prompt, events, exact resume; then the same by the front end's buttons."""
    return [
        passed_tests("tests/host/test_nodes.py", "tests/host/test_training.py", "tests/host/test_routes.py"),
        passed_tests("tests/browser"),
    ]


def front_end() -> list[Check]:
    """The demo workflow in both renderers; the screenshots are for people to look at."""
    return [passed_tests("tests/browser")]


@contextmanager
def comfyui(*extra: str) -> Iterator[tuple[Any, Any]]:
    """A running ComfyUI with the pack, and a client of it."""
    from tests.conftest import find_comfyui
    from tests.host.comfy_server import ComfyServer

    found = find_comfyui()
    if found is None:
        raise Skipped("no ComfyUI here: set COMFYUI_PATH to its folder")
    with tempfile.TemporaryDirectory() as folder:
        server = ComfyServer(found, ROOT, Path(folder), *extra)
        try:
            server.wait_until_up()
            client = server.client()
            yield server, client
            client.close()
        finally:
            server.stop()


def core_inference() -> list[Check]:
    """A LoRA trained in ComfyUI, used by core's loaders and samplers."""
    import numpy as np

    from tests.host.comfy_server import errors
    from tests.host.test_core_branch import images
    from trainer.demo import checker

    with comfyui() as (server, client):
        graph = _graph()
        # Demo Model writes the file that UNETLoader then lists; a graph is checked before it runs, so that comes first.
        written = {name: graph[name] for name in ("demo", "bare_model")} | {
            "look": {"class_type": "PreviewAny", "inputs": {"source": ["bare_model", 0]}}
        }
        failed = errors(client.run(written)) or errors(history := client.run(graph, limit=900))
        if failed:
            return [Check("the graph", str(failed)[:400], "no error", False)]
        unmatched = server.log.count("lora key not loaded")
        clips = {name: images(server, history["outputs"][name]["images"]) for name in ("ours", "core", "plain", "bare")}
    error = float(np.square(clips["ours"] - clips["core"]).mean())
    psnr = 10 * np.log10(255**2 / error) if error else float("inf")
    seen = {name: checker.is_star(clip.astype(np.uint8)) for name, clip in clips.items()}
    return [
        at_most("unmatched keys in core", unmatched, 0, "d"),
        at_least("PSNR of core against Sample Video, same noise and sigmas, dB", psnr, 40.0, ".1f"),
        Check("KSampler with the LoRA", f"star {seen['plain']}", "star", seen["plain"]),
        Check("KSampler without", f"star {seen['bare']}", "no star", not seen["bare"]),
        passed_tests("tests/models/test_wan_in_comfy.py::test_lora_velocity_equals_diffusers"),
    ]


def _graph() -> dict[str, Any]:
    """Demo training, then Sample Video, SamplerCustom at the same sigmas, and KSampler with and without the LoRA."""
    from trainer.demo.command import demo_job
    from trainer.objectives.noise_levels import sampling_sigmas

    job = demo_job(Path("model"), Path("clips"))
    optimizer = {name: getattr(job.optimizer, name) for name in ("learning_rate", "warmup", "schedule")}
    schedule = {"steps": job.schedule.steps, "batch_size": job.schedule.batch_size, "seed": job.schedule.seed}
    objective = {"timesteps": job.objective.timesteps, "shift": job.objective.shift}
    sigmas = ", ".join(f"{sigma:.8f}" for sigma in sampling_sigmas(STEPS, SHIFT).tolist())
    sampling = {"positive": ["positive", 0], "negative": ["negative", 0], "latent_image": ["latent", 0]}
    ksampler = {**sampling, "seed": SEED, "steps": STEPS, "cfg": GUIDANCE, "sampler_name": "euler", "scheduler": "simple", "denoise": 1.0}

    def node(kind: str, **inputs: Any) -> dict[str, Any]:
        return {"class_type": kind, "inputs": inputs}

    def shown(name: str, latent: list[Any]) -> dict[str, Any]:
        frames = node("VAEDecode", samples=latent, vae=["demo", 2])
        return {f"{name}_frames": frames, name: node("PreviewImage", images=[f"{name}_frames", 0])}

    model = ["demo", 0]
    return {
        "demo": node("VideoTrainerDemoModel"),
        "clips": node("VideoTrainerDemoClips"),
        "buckets": node("VideoTrainerFrameBuckets", dataset=["clips", 0], sizes="17x64x64"),
        "lora": node("VideoTrainerLoRASettings", rank=job.adapter.rank, continue_from="none"),
        "optimizer": node("VideoTrainerOptimizer", **optimizer),
        "train": node(
            "VideoTrainerTrain", model=model, dataset=["buckets", 0], adapter=["lora", 0], optimizer=["optimizer", 0],
            name="core", gradient_checkpointing="off", caption_dropout=job.captions.dropout, **objective, **schedule,
        ),
        "video": node(
            "VideoTrainerSampleVideo", model=model, lora=["train", 0], prompt=PROMPT, steps=STEPS, guidance=GUIDANCE, shift=SHIFT,
            seed=SEED, **SIZE,
        ),
        "video_frames": node("GetVideoComponents", video=["video", 0]),
        "ours": node("PreviewImage", images=["video_frames", 0]),
        "with_lora": node("LoraModelLoader", model=["unet", 0], lora=["train", 1], strength_model=1.0, bypass=False),
        "shifted": node("ModelSamplingSD3", model=["with_lora", 0], shift=SHIFT),
        "unet": node("UNETLoader", unet_name="video_trainer_demo.safetensors", weight_dtype="default"),
        "bare_model": node("ModelSamplingSD3", model=["demo", 1], shift=SHIFT),
        "positive": node("VideoTrainerEncodePrompt", model=model, text=PROMPT),
        "negative": node("VideoTrainerEncodePrompt", model=model, text=""),
        "latent": node("EmptyHunyuanLatentVideo", length=17, height=64, width=64, batch_size=1),
        "euler": node("KSamplerSelect", sampler_name="euler"),
        "sigmas": node("ManualSigmas", sigmas=sigmas),
        "same": node(
            "SamplerCustom", model=["shifted", 0], add_noise=True, noise_seed=SEED, cfg=GUIDANCE, sampler=["euler", 0],
            sigmas=["sigmas", 0], **sampling,
        ),
        "ksampler": node("KSampler", model=["shifted", 0], **ksampler),
        "without": node("KSampler", model=["bare_model", 0], **ksampler),
        **shown("core", ["same", 0]),
        **shown("plain", ["ksampler", 0]),
        **shown("bare", ["without", 0]),
    }  # fmt: skip


def start_up() -> list[Check]:
    """What the pack adds to ComfyUI's start and to the first /object_info (least of two starts each), and what it imports."""
    import time

    from tests.host.comfy_server import PACK_NAME
    from tests.host.test_nodes import HEAVY

    starts, listings = [], {"with": [], "without": []}
    for kind, extra in (("with", ()), ("without", ("--disable-all-custom-nodes",))) * 2:
        with comfyui(*extra) as (server, _):
            start = time.perf_counter()
            server.get("/object_info")
            listings[kind].append(time.perf_counter() - start)
            if kind == "with":
                found = re.search(rf"([\d.]+) seconds( \(IMPORT FAILED\))?: \S+{re.escape(PACK_NAME)}", server.log)
                starts.append(float(found[1]) if found and not found[2] else float("inf"))
    return [
        at_most("added to the start, s", min(starts), 0.3, ".2f"),
        at_most("added to the first /object_info, s", min(listings["with"]) - min(listings["without"]), 0.2, ".3f"),
        passed_tests("tests/host/test_nodes.py::test_loading_is_quick_and_imports_nothing_heavy"),
        Check(
            "watched for", ", ".join(sorted(HEAVY)), "not imported before a node runs", {"diffusers", "peft", "accelerate"} <= set(HEAVY)
        ),
    ]
