"""Single files as ComfyUI has them, made from a tiny diffusers folder: transformers, VAE, text encoders with their tokenizers."""

from __future__ import annotations

import io
import json
import shutil
import string
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from trainer.job import ModelSettings
from trainer.models import open_model
from trainer.models.encoder_kinds import SENTENCEPIECE
from trainer.models.key_tensors import to_comfy
from trainer.models.sentencepiece_file import unigram_tokenizer
from trainer.models.shapes import with_config

FP8 = torch.float8_e4m3fn
STARTS = {"llama": "model.", "qwen2_5_vl_text": "model.", "clip_text_model": "text_model."}  # of names, which transformers 5 leaves out
BLOCKS = (
    "blocks.", "encoder.block.", "double_blocks.", "single_blocks.", "transformer_blocks.", "single_transformer_blocks.",
    "double_stream_blocks.", "single_stream_blocks.", "model.layers.",
)  # fmt: skip


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
    """Writes the parts of a tiny diffusers folder as single files, and names them as a job does.

    Tokenizers that are not in a text encoder's file are made in a folder like ComfyUI's own.
    """
    to.mkdir(parents=True, exist_ok=True)
    family, named, texts = open_model(folder), {"transformer": to / "transformer.safetensors", "vae": to / "vae.safetensors"}, list[str]()
    family.write_comfy_files(named["transformer"], named["vae"])
    if (folder / "transformer_2").is_dir():
        named["transformer_low"] = to / "transformer_low.safetensors"
        second = load_file(folder / "transformer_2/diffusion_pytorch_model.safetensors")
        save_file(to_comfy(family.keys, second), named["transformer_low"], read(named["transformer"])[1])
    for part in family.layout.encoders:
        found = encoder_file(folder, part)
        if found is None:
            continue
        tensors, config = found
        tokenizer = part.replace("text_encoder", "tokenizer")
        source = family.layout.tokenizers.get(tokenizer)
        if part == "image_encoder":
            named[part] = to / f"{part}.safetensors"
        else:
            texts.append(str(to / f"{part}.safetensors"))
            tensors.pop("encoder.embed_tokens.weight", None)
        if source == SENTENCEPIECE:
            tensors[SENTENCEPIECE] = as_bytes(sentencepiece_model())
        elif source is not None:
            write_tokenizer(folder / tokenizer, to / "comfy" / source)
        save_file(tensors, to / f"{part}.safetensors", with_config(part if part == "image_encoder" else "text_encoder", config))
    return ModelSettings(text_encoders=texts, tokenizers=str(to / "comfy"), **{name: str(file) for name, file in named.items()})


def encoder_file(folder: Path, part: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """An encoder's tensors as a file of ComfyUI has them, and its configuration; of a Llava either of its two files."""
    whole = folder / "text_encoder"
    if part == "image_encoder" and not (folder / part).is_dir() and _config(whole).get("model_type") == "llava":
        tensors = load_file(whole / "model.safetensors")
        seen = {name: tensor for name, tensor in tensors.items() if "language_model" not in name and "lm_head" not in name}
        return {_vision_name(name): tensor for name, tensor in seen.items()}, _config(whole)["vision_config"]
    if not (folder / part).is_dir():
        return None
    tensors, config = load_file(folder / part / "model.safetensors"), _config(folder / part)
    if part == "image_encoder":
        return {_vision_name(name): tensor for name, tensor in tensors.items()}, config
    if config["model_type"] == "llava":
        said = {name.rpartition("language_model.")[2]: tensor for name, tensor in tensors.items() if "language_model." in name}
        return {f"model.{name.removeprefix('model.')}": tensor for name, tensor in said.items()}, config["text_config"]
    start = STARTS.get(config["model_type"], "")
    return {
        name if name.startswith("text_projection.") else start + name.removeprefix(start): tensor for name, tensor in tensors.items()
    }, config


def _vision_name(name: str) -> str:
    joins = name.rpartition("multi_modal_projector.")
    return "".join(joins[1:]) if joins[1] else f"vision_model.{name.rpartition('vision_tower.')[2].removeprefix('vision_model.')}"


def _config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def write_tokenizer(folder: Path, to: Path) -> None:
    """A tokenizer as ComfyUI keeps it: a CLIP's as two lists, the model's own if it has one, else a SentencePiece model's."""
    to.mkdir(parents=True, exist_ok=True)
    if to.name == "sd1_tokenizer":
        letters = [character + end for end in ("", "</w>") for character in string.ascii_lowercase + string.punctuation]
        pieces = {piece: place for place, piece in enumerate([*letters, "<|startoftext|>", "<|endoftext|>"])}
        (to / "vocab.json").write_text(json.dumps(pieces), encoding="utf-8")
        (to / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    elif (folder / "tokenizer.json").is_file():
        shutil.copyfile(folder / "tokenizer.json", to / "tokenizer.json")
    else:
        unigram_tokenizer(sentencepiece_model()).save(str(to / "tokenizer.json"))


def read(file: Path | str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """A file's tensors and metadata."""
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        return load_file(file), opened.metadata() or {}


def is_linear(name: str, tensor: Tensor) -> bool:
    """Whether it is a weight that fp8_scaled files quantise."""
    return name.endswith(".weight") and tensor.dim() == 2 and tensor.is_floating_point() and name.startswith(BLOCKS)


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
        made |= {f"{layer.removeprefix(prefix)}.comfy_quant": as_bytes(json.dumps(told).encode()) for layer, told in layers.items()}
    elif layout == "metadata":
        metadata["_quantization_metadata"] = json.dumps({"format_version": "1.0", "layers": layers})
    save_file({prefix + name: tensor.contiguous() for name, tensor in made.items()}, to, metadata)
    return meant


def as_bytes(data: bytes) -> Tensor:
    """Bytes as a tensor of a file."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
