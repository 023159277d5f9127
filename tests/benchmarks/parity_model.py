"""A transformer of the shapes of Wan 2.1 1.3B that knows the demo's world: trained in full, weights and all, on latents of the demo's VAE.

Weights that were trained are what quantisation is judged on: random ones have no outliers. It reads the demo's own text encoder.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from trainer.demo.world import Scene

FILE = "transformer.safetensors"
RATE, WARM_UP, AVERAGED = 2e-4, 50, 0.99
HELD_OUT_SEED = 40_000


@dataclass(frozen=True)
class Plan:
    """How large the model is and how long it is trained."""

    heads: int = 12
    layers: int = 30
    feed_forward: int = 8960
    bank: int = 8192  # clips
    batch: int = 64
    steps: int = 600
    seconds: float = 240.0

    @property
    def config(self) -> dict[str, Any]:
        """The transformer's, of Wan's 1.3B but for its texts, which are the demo's."""
        from trainer.demo.model import TEXT_CONFIG

        return {
            "patch_size": (1, 2, 2), "num_attention_heads": self.heads, "attention_head_dim": 128, "in_channels": 16, "out_channels": 16,
            "text_dim": TEXT_CONFIG["d_model"], "freq_dim": 256, "ffn_dim": self.feed_forward, "num_layers": self.layers,
            "cross_attn_norm": True, "qk_norm": "rms_norm_across_heads", "rope_max_seq_len": 1024,
        }  # fmt: skip


SMALL = Plan(heads=2, layers=2, feed_forward=256, bank=8, batch=2, steps=3)


@dataclass(frozen=True)
class Examples:
    """Clips that were not trained on: normalised latents [N, C, T, h, w] and text embeddings [N, L, D]."""

    latents: Tensor
    texts: Tensor


def trained(folder: Path, plan: Plan, device: torch.device) -> dict[str, Tensor]:
    """The weights, float32 on the host: those that lie in `folder`, else trained in full and saved there."""
    from safetensors.torch import load_file, save_file

    file = folder / FILE
    if file.is_file():
        return load_file(file)
    state = _train(plan, device)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(state, file)
    return state


def _train(plan: Plan, device: torch.device) -> dict[str, Tensor]:
    import torch
    from diffusers import WanTransformer3DModel

    from trainer.demo.model import embed, load_model
    from trainer.demo.pretrain_transformer import CAPTIONS, _latent_bank, _loss
    from trainer.demo.schedule import Average, Schedule, train

    torch.manual_seed(HELD_OUT_SEED - 1)
    demo = load_model(device=device.type)
    with device:
        transformer: Any = WanTransformer3DModel(**plan.config)
    start = time.perf_counter()
    latents, ids = _latent_bank(demo.vae, plan.bank, HELD_OUT_SEED - 2, device.type)
    print(f"  {sum(p.numel() for p in transformer.parameters()) / 1e9:.2f} G weights, bank {time.perf_counter() - start:.0f} s", flush=True)
    optimizer = torch.optim.AdamW(transformer.parameters(), RATE, betas=(0.9, 0.99), weight_decay=0.01, fused=device.type == "cuda")
    schedule = Schedule(plan.steps, RATE, plan.seconds, warmup=min(WARM_UP, plan.steps))

    def loss(clean: Tensor, texts: Tensor) -> Tensor:
        return _loss(transformer, clean.float(), texts)

    def examples() -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(latents), (plan.batch,), device=device)
        with torch.no_grad():
            return latents[chosen], embed(demo.text_encoder, ids[chosen, torch.randint(CAPTIONS, (plan.batch,), device=device)])

    train("1.3B in full", transformer, loss, examples, schedule, optimizer, Average(transformer, AVERAGED), device.type)
    with torch.no_grad():
        losses = [loss(*examples()).item() for _ in range(4)]
    del optimizer
    print(
        f"  trained in full: {schedule.step} steps, loss {sum(losses) / 4:.3f} (an untrained model's is about 2)",
        file=sys.stderr,
        flush=True,
    )
    return {name: value.detach().to("cpu").contiguous() for name, value in transformer.state_dict().items()}


def examples_of(scenes: Sequence[Scene], device: torch.device) -> Examples:
    """Scenes as the demo's VAE and text encoder give them."""
    import torch

    from trainer.demo.clip_coding import encode_clip
    from trainer.demo.model import embed, latent_statistics, load_model, token_ids
    from trainer.demo.world import caption, render

    demo = load_model(device=device.type)
    mean, std = latent_statistics(demo.vae)
    with torch.no_grad():
        pixels = render(scenes, device=device.type).permute(0, 4, 1, 2, 3)
        latents = (encode_clip(demo.vae, pixels / 127.5 - 1) - mean) / std
        texts = embed(demo.text_encoder, token_ids([caption(scene) for scene in scenes]).to(device))
    return Examples(latents, texts)


def unseen(count: int) -> Sequence[Scene]:
    """Scenes of the concept that a LoRA of the demo learns, the same each time, which neither it nor the pretraining saw."""
    from trainer.demo.world import random_concept

    generator = random.Random(HELD_OUT_SEED)
    return [random_concept(generator) for _ in range(count)]
