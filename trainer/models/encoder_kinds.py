"""Kinds of text and image encoder files, told by their headers; their tensors have transformers' names but for a prefix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from .layout import PartKind, Told
from .shapes import Shapes

SENTENCEPIECE = "spiece_model"  # the tensor that holds a tokenizer inside a text encoder's file
FEW_TOKENS = 2048
_T5 = "encoder.block.0.layer.0.SelfAttention."
_FEED_FORWARD = "encoder.block.0.layer.1.DenseReluDense."


def _t5(shapes: Shapes) -> dict[str, int] | None:
    if _T5 + "q.weight" not in shapes or _T5 + "relative_attention_bias.weight" not in shapes:
        return None
    inner, width = shapes[_T5 + "q.weight"]
    buckets, heads = shapes[_T5 + "relative_attention_bias.weight"]
    wide = shapes.get(_FEED_FORWARD + "wi_0.weight") or shapes.get(_FEED_FORWARD + "wi.weight") or (0, 0)
    embedding = shapes.get("shared.weight") or shapes.get("encoder.embed_tokens.weight") or (0, 0)
    return {
        "d_model": width, "d_kv": inner // heads, "d_ff": wide[0], "num_heads": heads, "vocab_size": embedding[0],
        "num_layers": shapes.count("encoder.block.*."), "relative_attention_num_buckets": buckets,
    }  # fmt: skip


def _read_umt5(shapes: Shapes) -> Told | None:
    """Like T5, with positions of their own in each block."""
    values = _t5(shapes)
    blocks = shapes.count("encoder.block.*.layer.0.SelfAttention.relative_attention_bias.")
    return Told(dict(values)) if values and blocks == values["num_layers"] else None


def _read_t5(shapes: Shapes) -> Told | None:
    values = _t5(shapes)
    blocks = shapes.count("encoder.block.*.layer.0.SelfAttention.relative_attention_bias.")
    return Told(dict(values)) if values and blocks == 1 else None


def _read_byt5(shapes: Shapes) -> Told | None:
    """A T5 whose tokens are bytes and a few marks."""
    told = _read_t5(shapes)
    return told if told and told.values["vocab_size"] < FEW_TOKENS else None


def _read_clip_text(shapes: Shapes) -> Told | None:
    if "text_model.encoder.layers.0.mlp.fc1.weight" not in shapes:
        return None
    positions, _ = shapes["text_model.embeddings.position_embedding.weight"]
    vocabulary, width = shapes["text_model.embeddings.token_embedding.weight"]
    values = {
        "hidden_size": width, "vocab_size": vocabulary, "max_position_embeddings": positions,
        "intermediate_size": shapes["text_model.encoder.layers.0.mlp.fc1.weight"][0],
        "num_hidden_layers": shapes.count("text_model.encoder.layers.*."),
    }  # fmt: skip
    if "text_projection.weight" in shapes:
        values["projection_dim"] = shapes["text_projection.weight"][0]
    return Told(values)


def _read_vision(shapes: Shapes, siglip: bool) -> Told | None:
    start = "vision_model."
    if start + "encoder.layers.0.mlp.fc1.weight" not in shapes or (start + "embeddings.class_embedding" in shapes) == siglip:
        return None
    width, channels, patch = shapes[start + "embeddings.patch_embedding.weight"][:3]
    positions = shapes[start + "embeddings.position_embedding.weight"][0] - (not siglip)
    seen = {} if siglip else {"image_size": round(positions**0.5) * patch}  # SigLIP's patches leave a rest, which no shape tells
    values = {
        "hidden_size": width, "num_channels": channels, "patch_size": patch, **seen,
        "intermediate_size": shapes[start + "encoder.layers.0.mlp.fc1.weight"][0],
        "num_hidden_layers": shapes.count(start + "encoder.layers.*."),
    }  # fmt: skip
    if siglip and start + "head.probe" not in shapes:
        values["vision_use_head"] = False
    if "visual_projection.weight" in shapes:
        values["projection_dim"] = shapes["visual_projection.weight"][0]
    return Told(values)


def _read_llava_vision(shapes: Shapes) -> Told | None:
    """A CLIP vision encoder and the two layers that make its patches a Llava's tokens."""
    told = _read_vision(shapes, siglip=False)
    if told is None or "multi_modal_projector.linear_2.weight" not in shapes:
        return None
    return Told({**told.values, "language_size": shapes["multi_modal_projector.linear_2.weight"][0]})


def _read_decoder(shapes: Shapes, biased: bool) -> Told | None:
    """A Llama: with biases of queries, keys and values a Qwen 2.5, which may have eyes too."""
    layer = "model.layers.0."
    gated = layer + "mlp.gate_proj.weight" in shapes and layer + "self_attn.q_proj.weight" in shapes
    if not gated or (layer + "self_attn.k_proj.bias" in shapes) != biased:
        return None
    if layer + "self_attn.q_norm.weight" in shapes or layer + "post_feedforward_layernorm.weight" in shapes:
        return None
    vocabulary, width = shapes["model.embed_tokens.weight"]
    return Told({
        "hidden_size": width, "vocab_size": vocabulary, "intermediate_size": shapes[layer + "mlp.gate_proj.weight"][0],
        "num_hidden_layers": shapes.count("model.layers.*."),
    })  # fmt: skip


def _of(read: Callable[..., Told | None], **options: bool) -> Callable[[Shapes], Told | None]:
    return lambda shapes: read(shapes, **options)


ENCODERS: Mapping[str, PartKind] = MappingProxyType({
    "umt5": PartKind("a UMT5 text encoder", _read_umt5),
    "t5": PartKind("a T5 text encoder", _read_t5),
    "byt5": PartKind("a ByT5 text encoder", _read_byt5),
    "clip-text": PartKind("a CLIP text encoder", _read_clip_text),
    "llama": PartKind("a Llama text encoder", _of(_read_decoder, biased=False)),
    "qwen2.5-vl": PartKind("a Qwen 2.5 text encoder", _of(_read_decoder, biased=True)),
    "llava-vision": PartKind("a Llava vision encoder", _read_llava_vision),
    "clip-vision": PartKind("a CLIP vision encoder", _of(_read_vision, siglip=False)),
    "siglip-vision": PartKind("a SigLIP vision encoder", _of(_read_vision, siglip=True)),
})  # fmt: skip
