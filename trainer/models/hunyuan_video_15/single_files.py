"""HunyuanVideo-1.5's single files: how they are told from their headers, and what is read there."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

from ..layout import Config, FileLayout, PartKind, Told, latent_channels
from ..shapes import Shapes
from . import keys

OURS = (
    "txt_in.individual_token_refiner.blocks.0.norm1.weight",
    "vision_in.proj.0.weight",
    "cond_type_embedding.weight",
    "byt5_in.fc1.weight",
)
RELEASES = ("t2v-480p", "t2v-720p", "i2v-480p", "i2v-720p", "t2v-480p-distilled", "i2v-480p-distilled", "i2v-720p-distilled")
UPSCALED = 98  # input channels of the models that make videos of a higher resolution out of others


def _transformer(shapes: Shapes) -> Told | None:
    """The configuration of HunyuanVideo15Transformer3DModel, from names of ComfyUI's class or the authors'; not its task and resolution."""
    if not set(OURS) <= shapes.keys():
        return None
    width, channels, *patch = shapes["img_in.proj.weight"]
    if "time_r_in.mlp.0.weight" in shapes or "time_r_in.in_layer.weight" in shapes:
        return Told(unsupported="distilled to few steps (MeanFlow)")
    if channels == UPSCALED:
        return Told(unsupported="super-resolution")
    block = "double_blocks.0."
    norm = shapes.get(block + "img_attn.norm.query_norm.weight") or shapes[block + "img_attn_q_norm.weight"]
    wide = shapes.get(block + "img_mlp.0.weight") or shapes[block + "img_mlp.fc1.weight"]
    return Told({
        "num_layers": shapes.count("double_blocks.*."), "num_attention_heads": width // norm[0], "attention_head_dim": norm[0],
        "num_refiner_layers": shapes.count("txt_in.individual_token_refiner.blocks.*."), "mlp_ratio": wide[0] / width,
        "in_channels": channels, "out_channels": shapes["final_layer.linear.weight"][0] // (patch[0] * patch[1] * patch[2]),
        "patch_size_t": patch[0], "patch_size": patch[1], "text_embed_dim": shapes["txt_in.input_embedder.weight"][1],
        "text_embed_2_dim": shapes["byt5_in.fc1.weight"][1], "image_embed_dim": shapes["vision_in.proj.0.weight"][0],
    })  # fmt: skip


def _task(config: Config) -> Hashable:
    """What its files may say of a model beside its sizes; those of ComfyUI do not tell text-to-video from image-to-video."""
    return config["in_channels"], config["out_channels"], config["task_type"]


def _vae(shapes: Shapes) -> Told | None:
    """The configuration of AutoencoderKLHunyuanVideo15."""
    if not {"encoder.conv_in.conv.weight", "decoder.up.0.block.0.norm1.gamma"} <= shapes.keys():
        return None
    stages = range(shapes.count("encoder.down.*."))
    return Told({
        "block_out_channels": [shapes[f"encoder.down.{n}.block.0.conv1.conv.weight"][0] for n in stages],
        "layers_per_block": shapes.count("encoder.down.0.block.*."), "latent_channels": shapes["decoder.conv_in.conv.weight"][1],
        "in_channels": shapes["encoder.conv_in.conv.weight"][1], "out_channels": shapes["decoder.conv_out.conv.weight"][0],
    })  # fmt: skip


def _file_name(release: str) -> str:
    """What the files of a release are called: 480p_t2v, or 480p_t2v_cfg_distilled."""
    task, size, *distilled = release.split("-")
    return f"^(?{'=' if distilled else '!'}.*distil)(?=.*{size})(?=.*{task})"


LAYOUT = FileLayout(
    configs=Path(__file__).parent / "configs",
    transformer=PartKind("a HunyuanVideo-1.5 diffusion model", _transformer, lambda _: keys.TRANSFORMER.original, _task),
    vaes=(PartKind("a HunyuanVideo-1.5 VAE", _vae, lambda _: keys.VAE, latent_channels),),
    encoders={"text_encoder": "qwen2.5-vl", "text_encoder_2": "byt5", "image_encoder": "siglip-vision"},
    tokenizers={"tokenizer": "text_encoders/qwen25_tokenizer"},  # the second one's tokens are bytes
    agreements=(
        ("transformer", "text_embed_dim", "text_encoder", "hidden_size"),
        ("transformer", "text_embed_2_dim", "text_encoder_2", "d_model"),
        ("transformer", "image_embed_dim", "image_encoder", "hidden_size"),
    ),
    file_names={release: _file_name(release) for release in RELEASES},
)
