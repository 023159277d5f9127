"""A training step of each family at full size: `python tests/benchmarks/families.py [name ...]`, on a card, with random weights.

Ours is `train_step` with the family's own inputs; plain is the same diffusers model with peft's adapter, gradient
checkpointing, autocast and fused AdamW in a loop of a few lines. Both in one process, one after the other.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

RANK, STEPS, GIB = 32, 3, 1 << 30


@dataclass(frozen=True)
class Full:
    """A full-size model: whose tiny folder gives its small parts, its transformer's settings, the size trained at, and its inputs."""

    writer: str  # module:function below tests.tiny
    transformer: dict[str, Any]
    size: tuple[int, int, int]  # frames, height, width
    text: Mapping[str, tuple[int, ...]]
    given: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # beside the latents, as cached
    latents: tuple[int, ...] = ()  # where they are not those of the size


_WAN = {"attention_head_dim": 128, "text_dim": 4096, "in_channels": 16, "out_channels": 16}
_COG = {"attention_head_dim": 64, "in_channels": 16, "out_channels": 16, "text_embed_dim": 4096, "sample_width": 90, "sample_height": 60}
_HIDREAM = {
    "patch_size": 2, "in_channels": 16, "attention_head_dim": 128, "num_attention_heads": 20, "caption_channels": [4096, 4096],
    "text_emb_dim": 2048, "num_routed_experts": 4, "num_activated_experts": 2, "axes_dims_rope": (64, 32, 32), "max_resolution": (128, 128),
    "llama_layers": [*range(32), *[31] * 16],
}  # fmt: skip
_HUNYUAN = {"text": (200, 4096), "pooled": (768,)}
FULL = {
    "Wan 2.1 14B": Full(
        "wan:write_tiny_wan", {**_WAN, "num_attention_heads": 40, "num_layers": 40, "ffn_dim": 13824}, (81, 480, 832), {"text": (120, 4096)}
    ),
    "Wan 2.1 1.3B": Full(
        "wan:write_tiny_wan", {**_WAN, "num_attention_heads": 12, "num_layers": 30, "ffn_dim": 8960}, (81, 480, 832), {"text": (120, 4096)}
    ),
    "LTX-Video 2B": Full("ltx_video:write_tiny_ltx", {}, (121, 512, 768), {"text": (100, 4096)}),
    "CogVideoX-5B": Full(
        "cogvideox:write_5b",
        {**_COG, "num_attention_heads": 48, "num_layers": 42, "use_rotary_positional_embeddings": True},
        (49, 480, 720),
        {"text": (226, 4096)},
    ),
    "CogVideoX-2B": Full(
        "cogvideox:write_2b", {**_COG, "num_attention_heads": 30, "num_layers": 30}, (49, 480, 720), {"text": (226, 4096)}
    ),
    "HunyuanVideo": Full("hunyuan_video:write_t2v", {"guidance_embeds": True}, (49, 512, 768), _HUNYUAN),
    "FramePack": Full(
        "framepack:write_framepack",
        {"has_image_proj": True, "image_proj_dim": 1152, "has_clean_x_embedder": True}, (37, 640, 640), _HUNYUAN,
        {"start": (16, 1, 80, 80), "image": (729, 1152)},
    ),
    "HunyuanVideo-1.5": Full(
        "hunyuan_video_15:write_t2v", {"task_type": "t2v"}, (49, 480, 832), {"text": (200, 3584), "glyphs": (0, 1472)}
    ),
    "Wan 2.2 5B": Full(
        "wan:write_tiny_ti2v",
        {"num_attention_heads": 24, "num_layers": 30, "ffn_dim": 14336, "in_channels": 48, "out_channels": 48}, (121, 704, 1280),
        {"text": (120, 4096)}, latents=(48, 31, 44, 80),
    ),
    "Mochi 1": Full("mochi:write_tiny_mochi", {}, (37, 480, 848), {"text": (100, 4096)}),
    "HiDream-I1": Full(
        "hidream:write_tiny_hidream", {**_HIDREAM, "num_layers": 16, "num_single_layers": 32}, (1, 1024, 1024),
        {"pooled": (2048,), "t5": (128, 4096), "llama": (32, 128, 4096)},
    ),
}  # fmt: skip


def opened(full: Full, folder: Path) -> Any:
    """The family of a folder whose transformer is full-size in name only: a configuration without weights."""
    from accelerate import init_empty_weights

    from tests.tiny import _function
    from trainer.models import open_model

    _function(full.writer)(folder)
    kind = open_model(folder).transformer_class
    with init_empty_weights():
        kind(**full.transformer).save_config(folder / "transformer")  # type: ignore[operator,attr-defined]
    return open_model(folder)


def random_weights(config: Mapping[str, Any], kind: Any) -> Any:
    """A model in bf16 on the card, its weights small random numbers."""
    import torch

    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            model = kind.from_config(config)
    finally:
        torch.set_default_dtype(torch.float32)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    return model


def on_card(family: Any) -> Any:
    """The transformer as the family prepares it for training, with weights that no file holds."""
    import torch

    with patch.object(type(family.files), "load", lambda files, part, kind, dtype: random_weights(files.config(part), kind)):
        return family.load_transformer(torch.bfloat16).requires_grad_(False).eval()


def data(full: Full, family: Any) -> Any:
    """One clip's random encodings, drawn once."""
    import torch

    from trainer.data.dataset import Item
    from trainer.job import Bucket

    frames, height, width = full.size
    item = Item("clip", Path("clip.mp4"), ("a caption",), Bucket(frames=frames, height=height, width=width), 1, 1, "key")
    latents = full.latents or family.spec.latent_shape(*full.size)
    encoding = {"latents": torch.randn(latents), **{name: torch.randn(shape) for name, shape in full.given.items()}}
    text = {name: torch.randn(shape) for name, shape in full.text.items()}
    return SimpleNamespace(
        items=[item],
        windows=None,
        latents=lambda item, window=0: family.section(encoding, window),
        text=lambda *_: text,
        picture=lambda *_: None,
    )


def ours(full: Full, family: Any) -> Callable[[], Any]:
    """A step of ours, to be called again and again."""
    import torch

    from trainer.adapters.lora import Lora
    from trainer.compute import Compute
    from trainer.data.sampler import Sampler
    from trainer.events import EventLog, Silent
    from trainer.job import TrainingJob
    from trainer.objectives.flow_matching import FlowMatching
    from trainer.optim import make_optimizer
    from trainer.step import TrainState, train_step

    job = TrainingJob.parse({"adapter": {"rank": RANK}, "compute": {"device": "cuda", "dtype": "bf16"}})
    compute, transformer = Compute(job.compute), on_card(family)
    transformer.enable_gradient_checkpointing()
    lora = Lora.attach(transformer, family.spec, job.adapter, 0)
    lora.train(True)
    given = data(full, family)
    objective = FlowMatching(job, family, given, Sampler(given, 1, 1, 0), torch.device("cuda"))
    state = TrainState(transformer, lora.parameters(), make_optimizer(lora.parameters(), job.optimizer), compute.scaler())
    return lambda: train_step(1, job, state, objective, compute, EventLog(Silent())).loss


def plain(full: Full, family: Any) -> Callable[[], Any]:
    """A step as diffusers' example scripts write it: the model, peft, gradient checkpointing, AdamW; inputs made once."""
    import torch
    from peft import LoraConfig

    transformer = on_card(family)
    transformer.enable_gradient_checkpointing()
    transformer.add_adapter(LoraConfig(r=RANK, lora_alpha=RANK, target_modules=family.spec.adapter_targets["all"]))
    trained = [parameter for parameter in transformer.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    given = data(full, family)
    batch = {name: tensor[None].cuda() for name, tensor in given.latents(given.items[0]).items()}
    if family.spec.guidance_input is not None:
        batch["guidance"] = torch.ones(1, device="cuda")
    text = {name: tensor.cuda() for name, tensor in family.text_inputs([given.text("")]).items()}
    noise, sigma = torch.randn_like(batch["latents"]), torch.full((1,), 0.5, device="cuda")
    noise = torch.randn(1, *family.spec.latent_shape(*full.size), device="cuda") if not family.spec.section_frames else noise
    inputs = family.model_inputs(batch, text, noise, sigma)

    def step() -> float:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            output = transformer(**inputs.kwargs, return_dict=False)[0]
        loss = output.float().square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        return loss.item()

    return step


def measured(make: Callable[[], Callable[[], Any]]) -> dict[str, float]:
    """Seconds of a step, the least of some, after one to warm up, and peak GiB."""
    import torch

    step, seconds = make(), []
    step()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
        assert loss == loss, "the loss is not a number"
    peak = torch.cuda.max_memory_allocated() / GIB
    del step
    gc.collect()
    torch.cuda.empty_cache()
    return {"seconds": min(seconds), "gib": peak}


def row(name: str) -> dict[str, Any]:
    """One family's figures."""
    full = FULL[name]
    with tempfile.TemporaryDirectory() as place:
        family = opened(full, Path(place))
        weights = sum(parameter.numel() for parameter in family.skeleton.parameters()) / 1e9
        found = {kind: measured(lambda make=make: make(full, family)) for kind, make in (("plain", plain), ("ours", ours))}
    return {"family": name, "size": "x".join(map(str, full.size)), "billions": weights, **found}


def told(found: dict[str, Any]) -> str:
    """A line of the table."""
    plain, own = found["plain"], found["ours"]
    return (
        f"{found['family']:16} {found['billions']:5.2f} G  {found['size']:12} plain {plain['seconds']:6.2f} s {plain['gib']:6.1f}   "
        f"ours {own['seconds']:6.2f} s {own['gib']:6.1f}   ratio {plain['seconds'] / own['seconds']:.2f}"
    )


def main(names: list[str]) -> None:
    import torch

    print(f"{torch.cuda.get_device_name()}, LoRA of rank {RANK} on all layers, batch 1, bf16, gradient checkpointing; s/step and peak GiB")
    for name in names or FULL:
        try:
            found = row(name)
        except Exception as error:  # one family must not cost the others' figures
            print(f"{name:14} {type(error).__name__}: {str(error)[:600]}", flush=True)
            continue
        print(told(found), flush=True)
        print(json.dumps(found), file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
