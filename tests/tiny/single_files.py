"""Single files as ComfyUI has them, made from a tiny diffusers folder: transformer, VAE, text encoder with its tokenizer inside."""

from __future__ import annotations

import io
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from trainer.job import ModelSettings
from trainer.models import open_model
from trainer.models.key_tensors import to_comfy

FP8 = torch.float8_e4m3fn


def sentencepiece_model(size: int = 120) -> bytes:
    """A unigram model with a T5's special pieces, trained on a few sentences."""
    import sentencepiece

    sentences = [f"a red circle moves {n} steps over the green hill, then back" for n in range(200)]
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=written, vocab_size=size, model_type="unigram", pad_id=0, eos_id=1, unk_id=2,
        bos_id=-1, normalization_rule_name="nmt_nfkc", hard_vocab_limit=False, minloglevel=2, num_threads=1, byte_fallback=size > 256,
    )  # fmt: skip
    return written.getvalue()


def write_single_files(folder: Path, to: Path) -> ModelSettings:
    """Writes the parts of a tiny diffusers folder as single files, and names them as a job does."""
    to.mkdir(parents=True, exist_ok=True)
    names = ("transformer", "vae", "text", "transformer_low", "image_encoder")
    files = {name: to / f"{name}.safetensors" for name in names}
    family = open_model(folder)
    family.write_comfy_files(files["transformer"], files["vae"])
    text = load_file(folder / "text_encoder/model.safetensors")
    text.pop("encoder.embed_tokens.weight", None)
    text["spiece_model"] = torch.frombuffer(bytearray(sentencepiece_model()), dtype=torch.uint8)
    save_file(text, files["text"])
    if (folder / "transformer_2").is_dir():
        second = load_file(folder / "transformer_2/diffusion_pytorch_model.safetensors")
        save_file(to_comfy(family.keys, second), files["transformer_low"], read(files["transformer"])[1])
    if (folder / "image_encoder").is_dir():
        image = load_file(folder / "image_encoder/model.safetensors")
        named = {name if name.startswith("vision_model.") else f"vision_model.{name}": tensor for name, tensor in image.items()}
        save_file(named, files["image_encoder"])
    single = {name: str(file) for name, file in files.items() if name != "text" and file.is_file()}
    return ModelSettings(text_encoders=[str(files["text"])], **single)


def read(file: Path | str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """A file's tensors and metadata."""
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        return load_file(file), opened.metadata() or {}


def is_linear(name: str, tensor: Tensor) -> bool:
    """Whether it is a weight that fp8_scaled files quantise."""
    return name.endswith(".weight") and tensor.dim() == 2 and tensor.is_floating_point() and name.startswith(("blocks.", "encoder.block."))


def quantised(file: Path | str, to: Path, layout: str, prefix: str = "") -> dict[str, Tensor]:
    """Writes a file in one of ComfyUI's fp8 layouts, "plain", "old", "new" or "metadata"; what its weights stand for."""
    tensors, metadata = read(file)
    made, meant, layers = dict[str, Tensor](), dict(tensors), dict[str, dict[str, str]]()
    for name, tensor in tensors.items():
        if not is_linear(name, tensor):
            made[name] = tensor
            continue
        layer, scale = name.removesuffix(".weight"), torch.tensor(1.0) if layout == "plain" else tensor.abs().max().float() / 448
        made[name] = (tensor.float() / scale).to(FP8)
        meant[name] = made[name].float() * scale
        if layout == "old":
            made |= {f"{layer}.scale_weight": scale.reshape(1), f"{layer}.scale_input": torch.ones(1)}
        elif layout != "plain":
            made |= {f"{layer}.weight_scale": scale, f"{layer}.input_scale": torch.tensor(2.0)}
            layers[prefix + layer] = {"format": "float8_e4m3fn"}
    if layout == "old":
        made["scaled_fp8"] = torch.zeros(2, dtype=FP8)
    elif layout == "new":
        made |= {f"{layer.removeprefix(prefix)}.comfy_quant": _bytes(json.dumps(told)) for layer, told in layers.items()}
    elif layout == "metadata":
        metadata["_quantization_metadata"] = json.dumps({"format_version": "1.0", "layers": layers})
    save_file({prefix + name: tensor.contiguous() for name, tensor in made.items()}, to, metadata)
    return meant


def _bytes(text: str) -> Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
