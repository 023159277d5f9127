"""A pack for the tests' ComfyUI: where core fixes a model's sizes, it takes those of the file, so that small files load.

Nothing else changes: which model a file is, the names of its tensors and all that is computed stay core's own. A loader reads a
file right before it makes the model, and meanwhile the places where core has a number have the file's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

import comfy.clip_vision
import comfy.ldm.cogvideo.vae
import comfy.ldm.genmo.joint_model.asymm_models_joint
import comfy.ldm.genmo.vae.model
import comfy.ldm.wan.model
import comfy.ldm.wan.vae2_2
import comfy.model_detection
import comfy.sd
import comfy.text_encoders.long_clipl

NODE_CLASS_MAPPINGS: dict[str, type] = {}
Tensors = Mapping[str, Any]
T5_LAYER = "encoder.block.0.layer.0.SelfAttention."
T5_INSIDE = "encoder.block.0.layer.1.DenseReluDense.wi_0.weight"


def around(owner: Any, name: str, changed: Callable[..., Any]) -> None:
    """Puts `changed` in the place of a function of core, which it gets first."""
    setattr(owner, name, partial(changed, getattr(owner, name)))


def with_sizes(kind: Callable[..., Any], sizes: Mapping[str, Any]) -> Callable[..., Any]:
    """The same class, made with these sizes whatever is asked for."""
    return lambda *args, **given: kind(*args, **overlaid(given, sizes))


def with_first(kind: Callable[..., Any], width: int) -> Callable[..., Any]:
    """The same class, made with this width as its first argument."""
    return lambda _, *args, **given: kind(width, *args, **given)


def overlaid(given: Mapping[str, Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """The values given with the sizes put in their places."""
    return {**given, **{name: overlaid(given[name], size) if isinstance(size, dict) else size for name, size in sizes.items()}}


def count(tensors: Tensors, ending: str) -> int:
    """How many tensors' names end so."""
    return sum(name.endswith(ending) for name in tensors)


# text encoders


def text_sizes(tensors: Tensors) -> dict[str, dict[str, int]]:
    """Core's settings of the text encoder in a file, under each name that core may give it."""
    if "model.layers.0.self_attn.q_proj.weight" in tensors:
        return {f"{name}_model_config": decoder_sizes(tensors) for name in ("llama", "qwen25_7b")}
    if "text_model.embeddings.token_embedding.weight" in tensors:
        large = "text_model.encoder.layers.30.mlp.fc1.weight" in tensors  # by which core knows it
        return {f"clip_{'g' if large else 'l'}_model_config": clip_sizes(tensors)}
    (inner, width), (_, heads) = tensors[T5_LAYER + "q.weight"].shape, tensors[T5_LAYER + "relative_attention_bias.weight"].shape
    sizes = {
        "d_model": width, "num_heads": heads, "d_kv": inner // heads, "vocab_size": tensors["shared.weight"].shape[0],
        "num_layers": count(tensors, ".0.SelfAttention.q.weight"), "d_ff": tensors[T5_INSIDE].shape[0],
    }  # fmt: skip
    return {f"{name}_model_config": sizes for name in ("t5xxl", "umt5xxl", "")}  # ByT5 has no name there


def decoder_sizes(tensors: Tensors) -> dict[str, int]:
    """Of a Llama or a Qwen, whose heads core has 128 numbers wide."""
    layer = "model.layers.0."
    vocabulary, width = tensors["model.embed_tokens.weight"].shape
    heads, groups = (tensors[f"{layer}self_attn.{name}_proj.weight"].shape[0] // 128 for name in "qk")
    return {
        "vocab_size": vocabulary, "hidden_size": width, "intermediate_size": tensors[layer + "mlp.gate_proj.weight"].shape[0],
        "num_attention_heads": heads, "num_key_value_heads": groups,
        "num_hidden_layers": count(tensors, "mlp.gate_proj.weight"),
    }  # fmt: skip


def clip_sizes(tensors: Tensors) -> dict[str, int]:
    """Of a CLIP text encoder of two heads."""
    inside, width = tensors["text_model.encoder.layers.0.mlp.fc1.weight"].shape
    layers = count(tensors, "mlp.fc1.weight")
    return {"hidden_size": width, "intermediate_size": inside, "num_hidden_layers": layers, "num_attention_heads": 2}


def text_encoder(read: Callable[..., Any], tensors: Any, tokenizer_data: Any, model_options: Mapping[str, Any]) -> Any:
    """Where core looks into each text encoder's file for sizes."""
    tokenizer_data, known = read(tensors, tokenizer_data, model_options)
    sizes = {name: {**known.get(name, {}), **found} for name, found in text_sizes(tensors).items()}
    return tokenizer_data, {**known, **sizes}


# image encoders


def vision_sizes(tensors: Tensors) -> dict[str, int]:
    """Core's settings of a vision encoder."""
    start = "vision_model."
    width, _, patch_size = tensors[start + "embeddings.patch_embedding.weight"].shape[:3]
    side = int(tensors[start + "embeddings.position_embedding.weight"].shape[0] ** 0.5)
    inside = tensors[start + "encoder.layers.0.mlp.fc1.weight"].shape[0]
    sizes = {"hidden_size": width, "intermediate_size": inside, "num_attention_heads": 2}
    return {**sizes, "image_size": side * patch_size, "patch_size": patch_size}


def vision_encoder(load: Callable[..., Any], tensors: Any, *args: Any, **more: Any) -> Any:
    """Over the JSON of sizes that core chooses by the file's depth."""
    read = comfy.clip_vision.json.load
    with patch.object(comfy.clip_vision.json, "load", lambda file: {**read(file), **vision_sizes(tensors)}):
        return load(tensors, *args, **more)


# diffusion models


def diffusion_model(detect: Callable[..., Any], tensors: Any, prefix: str, *args: Any, **more: Any) -> Any:
    """What core tells from a file, but for numbers that it writes down."""
    seen = tensors.get(f"{prefix}img_emb.proj.0.weight")
    comfy.ldm.wan.model.MLPProj = PROJECTION if seen is None else with_first(PROJECTION, seen.shape[0])
    config = detect(tensors, prefix, *args, **more)
    if config and (pooled := f"{prefix}vector_in.in_layer.weight") in tensors:
        config["vec_in_dim"] = tensors[pooled].shape[1]
    if config and f"{prefix}t5_yproj.weight" in tensors:
        config |= mochi_sizes(tensors, prefix)
    if config and f"{prefix}caption_projection.0.linear.weight" in tensors:
        config |= hidream_sizes(tensors, prefix)
    return config


def hidream_sizes(tensors: Tensors, prefix: str) -> dict[str, Any]:
    """As many of Llama's layers as there are blocks."""
    names = {name.removeprefix(prefix) for name in tensors}
    blocks = {kind: len({name.split(".")[1] for name in names if name.startswith(kind)}) for kind in ("double_stream", "single_stream")}
    width, caption = tensors[f"{prefix}caption_projection.0.linear.weight"].shape
    return {
        "num_layers": blocks["double_stream"], "num_single_layers": blocks["single_stream"], "llama_layers": [*range(sum(blocks.values()))],
        "num_attention_heads": width // 128, "caption_channels": [caption, caption],
        "text_emb_dim": tensors[f"{prefix}p_embedder.pooled_embedder.linear_1.weight"].shape[1],
    }  # fmt: skip


def mochi_sizes(tensors: Tensors, prefix: str) -> dict[str, Any]:
    """Core wants 12288 as the ratio's result; the layers inside have the file's width all the same."""
    first = f"{prefix}blocks.0."
    wide, narrow = (tensors[f"{first}mlp_{part}.w2.weight"].shape[0] for part in "xy")
    inside = tensors[first + "mlp_x.w2.weight"].shape[1]
    layers = comfy.ldm.genmo.joint_model.asymm_models_joint
    layers.FeedForward = lambda in_features, **given: FEED_FORWARD(
        in_features, **{**given, **({"hidden_size": inside * 3 // 2, "multiple_of": 1} if in_features == wide else {})}
    )
    return {
        "depth": count(tensors, "attn.qkv_x.weight"), "num_heads": wide // tensors[first + "attn.q_norm_x.weight"].shape[0],
        "hidden_size_x": wide, "hidden_size_y": narrow, "t5_feat_dim": tensors[f"{prefix}t5_yproj.weight"].shape[1],
        "mlp_ratio_x": 12288 / wide,
    }  # fmt: skip


PROJECTION = comfy.ldm.wan.model.MLPProj
FEED_FORWARD = comfy.ldm.genmo.joint_model.asymm_models_joint.FeedForward


# VAEs


def vae(make: Callable[..., None], self: Any, sd: Any = None, *args: Any, **more: Any) -> None:
    """As core makes it, of classes that have the file's sizes."""
    with ExitStack() as stack:
        for owner, name, sizes in vae_sizes(sd):
            stack.enter_context(patch.object(owner, name, with_sizes(getattr(owner, name), sizes)))
        make(self, sd, *args, **more)


def vae_sizes(tensors: Tensors) -> list[tuple[Any, str, dict[str, Any]]]:
    """The classes that core makes of a VAE's file, and the sizes that it fixes there."""
    if "decoder.upsamples.0.upsamples.0.residual.2.weight" in tensors:
        sizes = {"dim": tensors["encoder.conv1.weight"].shape[0], "dec_dim": tensors["decoder.head.0.gamma"].shape[0]}
        return [(comfy.ldm.wan.vae2_2, "WanVAE", sizes)]
    if "decoder.mid_block.resnets.0.norm1.norm_layer.weight" in tensors:
        wide = [tensors[f"encoder.down_blocks.{n}.resnets.0.conv1.conv.weight"].shape[0] for n in range(4)]
        sizes = {"block_out_channels": wide, "layers_per_block": count(tensors, ".conv1.conv.weight") // 9}
        return [(comfy.ldm.cogvideo.vae, "AutoencoderKLCogVideoX", sizes)]
    if "encoder.conv_in.conv.weight" in tensors and "decoder.up.0.block.0.norm1.gamma" in tensors:
        wide = [tensors[f"encoder.down.{n}.block.0.conv1.conv.weight"].shape[0] for n in range(5)]
        sizes = {"params": {"block_out_channels": wide, "num_res_blocks": 1}}
        return [(comfy.sd, "AutoencodingEngine", {"encoder_config": sizes, "decoder_config": sizes})]
    if "encoder.conv_in.conv.weight" in tensors and "post_quant_conv.weight" in tensors:
        return [(comfy.sd, "AutoencoderKL", {"ddconfig": {"ch": tensors["encoder.conv_in.conv.weight"].shape[0]}})]
    if "encoder.layers.0.weight" in tensors and "decoder.output_proj.weight" in tensors:
        base = tensors["encoder.layers.0.weight"].shape[0]
        sizes = {"base_channels": base, "channel_multipliers": [1, 2, 3, 4], "num_res_blocks": [1] * 5}
        return [(comfy.ldm.genmo.vae.model, name, sizes) for name in ("Encoder", "Decoder")]
    if "encoder.conv_in.weight" in tensors and "quant_conv.weight" not in tensors:
        sizes = {"params": {"ch": tensors["encoder.conv_in.weight"].shape[0]}}
        return [(comfy.sd, "AutoencodingEngine", {"encoder_config": sizes, "decoder_config": sizes})]
    return []


around(comfy.text_encoders.long_clipl, "model_options_long_clip", text_encoder)
around(comfy.clip_vision, "load_clipvision_from_sd", vision_encoder)
around(comfy.model_detection, "detect_unet_config", diffusion_model)
_make = comfy.sd.VAE.__init__
comfy.sd.VAE.__init__ = lambda self, *args, **more: vae(_make, self, *args, **more)
