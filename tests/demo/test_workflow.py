"""The demo on the canvas has the settings of the demo on the command line."""

import json
from pathlib import Path

from trainer.demo.command import WORKFLOW_PROMPTS, demo_job
from trainer.demo.model import FOLDER


def widgets(root: Path) -> dict[str, dict[str, object]]:
    graph = json.loads((root / "workflows/Video Trainer - Demo.json").read_text(encoding="utf-8"))
    named = {}
    for node in graph["nodes"]:
        names = [entry["name"] for entry in node.get("inputs", []) if "widget" in entry]
        named[node["type"]] = dict(zip(names, node.get("widgets_values", []), strict=False))
    return named


def test_settings_agree(root):
    job, shown = demo_job(Path("model"), Path("clips")), widgets(root)
    assert shown["VideoTrainerLoRASettings"]["rank"] == job.adapter.rank
    for name in ("learning_rate", "schedule", "warmup", "weight_decay", "beta1", "beta2", "max_grad_norm"):
        assert shown["VideoTrainerOptimizer"][name] == getattr(job.optimizer, name), name
    train = shown["VideoTrainerTrain"]
    for part, names in (
        ("schedule", ("steps", "batch_size", "accumulation", "seed")),
        ("output", ("name", "save_every")),
        ("objective", ("timesteps", "shift")),
    ):
        for name in names:
            assert train[name] == getattr(getattr(job, part), name), name
    assert train["caption_dropout"] == job.captions.dropout
    assert train["gradient_checkpointing"] == job.memory.gradient_checkpointing
    assert shown["VideoTrainerSamplePrompts"]["prompts"] == WORKFLOW_PROMPTS
    assert shown["VideoTrainerSamplePrompts"]["every"] == job.samples.every
    assert shown["VideoTrainerFrameBuckets"]["sizes"] == str(job.dataset.buckets[0])


def test_the_shipped_model_is_small_and_whole():
    from trainer.models import open_model

    assert sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()) <= 16e6
    assert open_model(FOLDER).spec.default_bucket == (17, 64, 64)
