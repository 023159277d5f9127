"""Wan's single files: how they are told from their headers, and what is read there."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

from ..encoder_kinds import SENTENCEPIECE
from ..layout import Config, FileLayout, PartKind, Told
from ..shapes import Shapes
from . import keys

HEAD_SIZE = 128  # of all releases; files of other models say it in their metadata
OTHER_VARIANTS = {  # a tensor that only this variant has -> what it is
    "vace_patch_embedding.weight": "VACE",
    "control_adapter.conv.weight": "camera control",
    "casual_audio_encoder.encoder.final_linear.weight": "speech to video",
    "audio_proj.audio_proj_glob_1.layer.bias": "HuMo",
    "face_adapter.fuser_blocks.0.k_norm.weight": "Animate",
    "patch_embedding_mask.weight": "SCAIL",
    "patch_embedding_pose.weight": "SCAIL",
    "patch_embedding_global.weight": "WanDancer",
    "ref_conv.weight": "Fun Control",
}


def _transformer(shapes: Shapes) -> Told | None:
    """The configuration of WanTransformer3DModel."""
    if not {"head.modulation", "head.head.weight", "patch_embedding.weight", "blocks.0.ffn.0.weight"} <= shapes.keys():
        return None
    if other := next((what for name, what in OTHER_VARIANTS.items() if name in shapes), ""):
        return Told(unsupported=other)
    width = shapes["head.modulation"][-1]
    _, channels, *patch = shapes["patch_embedding.weight"]
    area = patch[0] * patch[1] * patch[2]
    image, positions = shapes.get("img_emb.proj.0.weight"), shapes.get("img_emb.emb_pos")
    heads = int(shapes.told.get("num_heads", max(width // HEAD_SIZE, 1)))
    return Told({
        "num_layers": shapes.count("blocks.*."), "num_attention_heads": heads, "attention_head_dim": width // heads,
        "ffn_dim": shapes["blocks.0.ffn.0.weight"][0], "freq_dim": shapes["time_embedding.0.weight"][1],
        "text_dim": shapes["text_embedding.0.weight"][1], "in_channels": channels, "patch_size": patch,
        "out_channels": shapes["head.head.weight"][0] // area, "image_dim": image[0] if image else None,
        "added_kv_proj_dim": width if "blocks.0.cross_attn.k_img.weight" in shapes else None,
        "pos_embed_seq_len": positions[1] if positions else None,
    })  # fmt: skip


def _conditions(config: Config) -> Hashable:
    """What the model is given beside the noise."""
    seen, positions = config.get("image_dim") is not None, config.get("pos_embed_seq_len") is not None
    return config["in_channels"], config["out_channels"], seen, positions


def _vae(shapes: Shapes) -> Told | None:
    """The configuration of AutoencoderKLWan, of Wan 2.2 where its stages have blocks of their own."""
    if "decoder.middle.0.residual.0.gamma" not in shapes:
        return None
    residual = "decoder.upsamples.0.upsamples.0.residual.2.weight" in shapes
    stage = "encoder.downsamples.0.downsamples.*." if residual else "encoder.downsamples.*."
    samplers = [n for n in range(shapes.count(stage)) if stage.replace("*", str(n)) + "resample.1.weight" in shapes]
    blocks, base = samplers[0], shapes["encoder.conv1.weight"][0]
    first = "encoder.downsamples.{0}.downsamples.0." if residual else "encoder.downsamples.{1}."
    stages = shapes.count("encoder.downsamples.*.") if residual else len(samplers) + 1
    step, sampler = blocks + 1, f"encoder.downsamples.{{0}}.downsamples.{blocks}." if residual else "encoder.downsamples.{1}."
    widths = [shapes[first.format(n, n * step) + "residual.2.weight"][0] for n in range(stages)]
    timed = [sampler.format(n, n * step + blocks) + "time_conv.weight" in shapes for n in range(stages - 1)]
    decoder = shapes["decoder.head.0.gamma"][0]
    return Told({
        "base_dim": base, "decoder_base_dim": decoder if decoder != base else None, "z_dim": shapes["conv2.weight"][0],
        "dim_mult": [width // base for width in widths], "num_res_blocks": blocks, "temperal_downsample": timed,
        "in_channels": shapes["encoder.conv1.weight"][1], "out_channels": shapes["decoder.head.2.weight"][0], "is_residual": residual,
    })  # fmt: skip


def _latents(config: Config) -> Hashable:
    return f"{config['z_dim']} latent channels"


LAYOUT = FileLayout(
    configs=Path(__file__).parent / "configs",
    transformer=PartKind("a Wan diffusion model", _transformer, lambda _: keys.TRANSFORMER, _conditions),
    vaes=(PartKind("a Wan VAE", _vae, keys.vae_keys, _latents),),
    encoders={"text_encoder": "umt5", "image_encoder": "clip-vision"},
    tokenizers={"tokenizer": SENTENCEPIECE},
    agreements=(("transformer", "text_dim", "text_encoder", "d_model"), ("transformer", "image_dim", "image_encoder", "hidden_size")),
)
