"""The example workflows and the small models that stand for their files: in ComfyUI's layout, under the names that the workflows have."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save_file

from tests.host import family_models
from tests.tiny.single_files import quantised, read, write_single_files

Size = tuple[int, int, int]  # frames, height, width
LAYOUTS = {"scaled": "old", "fp8": "plain"}  # what a file's name says of its matrices, and how they are then stored
KINDS = {"transformer": "diffusion_models", "transformer_low": "diffusion_models", "vae": "vae", "image_encoder": "clip_vision"}
LLAMA = "text_encoders/llama_tokenizer/tokenizer.json"


@dataclass(frozen=True)
class Example:
    """A workflow's model and the size that it is trained and sampled at; `write` takes a folder and makes a diffusers folder of it."""

    workflow: str
    write: Callable[[Path], None]
    size: Size
    checkpoint: bool = False  # diffusion model and VAE lie in one file
    lora_user: str = ""  # the program that takes its LoRA, which core's nodes then do not get
    tokenizer: str = ""  # a file of core's, large enough to be missing in some copies of it

    def __str__(self) -> str:
        return self.workflow

    def put(self, chosen: dict[str, str], models: Path, scratch: Path) -> None:
        """Writes the files that Load Model Files for Training has `chosen` below ComfyUI's folder of models."""
        self.write(scratch / "folder")
        files = write_single_files(scratch / "folder", scratch / "files")
        made = {name: getattr(files, name) for name in KINDS} | {f"text_encoder_{n}": file for n, file in enumerate(files.text_encoders, 1)}
        kinds = KINDS | ({"transformer": "checkpoints"} if self.checkpoint else {})
        if self.checkpoint:
            made["transformer"] = together(Path(made["transformer"]), Path(made.pop("vae")), scratch / "checkpoint.safetensors")
        for name, file in made.items():
            if not file:
                continue
            target = models / kinds.get(name, "text_encoders") / chosen[name]
            target.parent.mkdir(parents=True, exist_ok=True)
            if layout := next((layout for said, layout in LAYOUTS.items() if said in target.name), ""):
                quantised(file, target, layout)
            else:
                Path(file).rename(target)


def together(transformer: Path, vae: Path, to: Path) -> str:
    """Two files as one checkpoint, their metadata joined part by part; its path."""
    (first, told), (second, more) = read(transformer), read(vae)
    tensors = {f"model.diffusion_model.{name}": tensor for name, tensor in first.items()}
    tensors |= {f"vae.{name}": tensor for name, tensor in second.items()}
    metadata = {name: json.dumps(json.loads(told.get(name, "{}")) | json.loads(more.get(name, "{}"))) for name in {*told, *more}}
    save_file(tensors, to, metadata)
    return str(to)


EXAMPLES = [
    Example("Wan 2.1 I2V 14B 480p", family_models.wan_i2v, (5, 32, 32)),
    Example("Wan 2.2 T2V A14B", family_models.wan_two_experts, (5, 32, 32)),
    Example("Wan 2.2 TI2V 5B", family_models.wan_5b, (5, 64, 64)),
    Example("LTX-Video 2B", family_models.ltx_video, (9, 64, 64), checkpoint=True),
    Example("HunyuanVideo T2V", family_models.hunyuan_video, (5, 32, 32), tokenizer=LLAMA),
    Example("FramePack", family_models.framepack, (37, 32, 32), lora_user="FramePackWrapper", tokenizer=LLAMA),
    Example("CogVideoX 5B", family_models.cogvideox, (9, 32, 32)),
    Example("Mochi 1", family_models.mochi, (7, 32, 32)),
    Example("HunyuanVideo 1.5 T2V", family_models.hunyuan_video_15, (5, 32, 32)),
    Example("HiDream I1", family_models.hidream, (1, 64, 64), tokenizer=LLAMA),
]
