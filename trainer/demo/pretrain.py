"""Makes the demo model's weights: `python trainer/demo/pretrain.py --out trainer/demo/model --stage all`.

The shipped weights come from several runs, not from one. Autoencoder, on an H200: 600 steps on frames and 3,300 on
clips (with an earlier form of the loss), 2,300 on clips, then 3,900 on today's larger world (`--resume`, batch 24, rate
1.5e-3, seed 21). Transformer and text encoder: 9,300 and 40,200 steps of batch 256 on an earlier autoencoder and world,
5,600 of batch 32 to 40 on two CPU cores with the present one. Then, on an H200, with `--resume --batch 256 --bank 60160`:
30,700 steps (`--seed 71 --seconds 320`, paths up to 5 pixels off the middle, 0.3 of the bank figures) and 29,000 on
today's world (`--seed 81 --seconds 300`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if __package__ in (None, ""):  # run by its path
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    __package__ = "trainer.demo"

from trainer.demo import model as demo
from trainer.demo.pretrain_transformer import train_transformer
from trainer.demo.pretrain_vae import train_vae
from trainer.demo.schedule import Schedule


def main() -> None:
    """Read the command line and run the stages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=demo.FOLDER, help="diffusers folder to write")
    parser.add_argument("--stage", choices=("vae", "transformer", "all"), default="all")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--image-steps", type=int, default=2000, help="autoencoder steps on single frames")
    parser.add_argument("--clip-steps", type=int, default=4000, help="autoencoder steps on clips")
    parser.add_argument("--clip-batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=20_000, help="transformer steps")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--bank", type=int, default=100_000, help="clips the transformer learns from")
    parser.add_argument("--image-seconds", type=float, default=float("inf"), help="time limits; rates fall in time")
    parser.add_argument("--clip-seconds", type=float, default=float("inf"))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--clip-rate", type=float, default=2e-3)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--resume", action="store_true", help="start from the weights in --out")
    options = parser.parse_args()
    if options.stage in ("vae", "all"):
        _vae_stage(options)
    if options.stage in ("transformer", "all"):
        _transformer_stage(options)


def _vae_stage(options: argparse.Namespace) -> None:
    """Train the autoencoder and write the folder with an untrained transformer."""
    images = Schedule(options.image_steps, 2e-3, options.image_seconds)
    clips = Schedule(options.clip_steps, options.clip_rate, options.clip_seconds)
    bank = min(60_000, options.bank)
    stages = [(1, 128, images)] * (options.image_steps > 0) + [(17, options.clip_batch, clips)]
    start = demo.load_model(options.out).vae.requires_grad_(True) if options.resume else None
    vae = train_vae(options.seed, options.device, stages, bank, start)
    _save(options.out, vae, demo.build_transformer(), demo.build_text_encoder())


def _transformer_stage(options: argparse.Namespace) -> None:
    """Train transformer and text encoder on the folder's autoencoder."""
    model = demo.load_model(options.out, options.device)
    start = None
    if options.resume:
        start = (model.transformer.requires_grad_(True), model.text_encoder.requires_grad_(True))
    schedule = Schedule(options.steps, options.rate, options.seconds, warmup=300)
    trained = train_transformer(model.vae, options.seed, options.device, options.batch, schedule, options.bank, start)
    _save(options.out, model.vae, *trained)


def _save(folder: Path, vae: object, transformer: object, text_encoder: object) -> None:
    """Write the diffusers folder."""
    tokenizer, scheduler = demo.build_tokenizer(), demo.build_scheduler()
    demo.save_model(demo.DemoModel(transformer, vae, text_encoder, tokenizer, scheduler), folder)
    print(f"wrote {folder}", flush=True)


if __name__ == "__main__":
    main()
