"""What kind of CogVideoX a model is, by its configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..base import FamilySpec, FrameRule, GoalValues, adapter_presets

if TYPE_CHECKING:
    from ..files import ModelFiles

TRANSFORMER = {  # what configurations leave out: defaults of CogVideoXTransformer3DModel
    "num_attention_heads": 30, "attention_head_dim": 64, "num_layers": 30, "in_channels": 16, "out_channels": 16, "ofs_embed_dim": None,
    "text_embed_dim": 4096, "max_text_seq_length": 226, "sample_width": 90, "sample_height": 60, "sample_frames": 49,
    "patch_size": 2, "patch_size_t": None, "use_rotary_positional_embeddings": False, "use_learned_positional_embeddings": False,
}  # fmt: skip
VAE = {  # and of AutoencoderKLCogVideoX
    "latent_channels": 16, "scaling_factor": 1.15258426, "invert_scale_latents": False, "temporal_compression_ratio": 4,
    "block_out_channels": (128, 256, 256, 512),
}  # fmt: skip
RELEASED = {(30, 1920): "2b", (42, 3072): "5b"}  # (layers, width); others are test models
SIZE_1_5 = (81, 768, 1360)  # of the released 1.5: its configurations name the largest
FRAME_RULE = FrameRule(8, 1)
PIPELINES = ("CogVideoXPipeline", "CogVideoXImageToVideoPipeline", "CogVideoXVideoToVideoPipeline")
ATTENTION = r"transformer_blocks\.\d+\.attn1\.(to_q|to_k|to_v|to_out\.0)"
FEED_FORWARD = r"transformer_blocks\.\d+\.ff\.net\.(0\.proj|2)"
# cogvideox-factory's example, of a style: rank 128, 3000 steps, 1e-4 or 1e-3. Half the rank for a character or a motion is our judgement.
GOALS = {
    "character": GoalValues(rank=64, learning_rate=1e-4, steps=3000),
    "style": GoalValues(rank=128, steps=3000),
    "motion": GoalValues(rank=64, learning_rate=1e-4),
}


def spec_of(config: Mapping[str, Any], vae: Mapping[str, Any]) -> FamilySpec:
    """The facts of a model by the complete configurations of its transformer and its VAE."""
    width, channels, paired = config["num_attention_heads"] * config["attention_head_dim"], vae["latent_channels"], config["patch_size_t"]
    size = RELEASED.get((config["num_layers"], width), "small")
    pictures = ("first_frame",) if config["in_channels"] > channels else ()
    stride = 2 ** (len(vae["block_out_channels"]) - 1)
    own_size = (config["sample_height"] * stride, config["sample_width"] * stride)
    return FamilySpec(
        family="cogvideox",
        variant=f"{'1.5-' if paired else ''}{size}-{'i2v' if pictures else 't2v'}",
        frame_rule=FRAME_RULE,
        size_multiple=stride * config["patch_size"],
        fps=16.0 if paired else 8.0,
        latent_channels=channels,
        latent_stride=(vae["temporal_compression_ratio"], stride, stride),
        text_length=config["max_text_seq_length"],
        train_shift=1.0,  # the model's own schedule is shifted
        sample_shift=1.0,
        guidance=6.0,  # CogVideoXPipeline's
        default_bucket=SIZE_1_5 if paired and size != "small" else (FRAME_RULE.floor(config["sample_frames"]), *own_size),
        conditions=pictures,
        required=pictures,
        adapter_targets=adapter_presets(ATTENTION, FEED_FORWARD),
        text_width=config["text_embed_dim"],
        only_size=own_size if config["use_learned_positional_embeddings"] else None,  # CogVideoXPatchEmbed refuses others
        latent_frames_multiple=paired or 1,
        diffusers_copy=True,
        goals=GOALS,
    )


def unsupported(files: ModelFiles, config: Mapping[str, Any], vae: Mapping[str, Any]) -> str:
    """Why a model is neither text-to-video nor image-to-video of CogVideoX; empty if it is."""
    scheduler, channels = files.config("scheduler"), vae["latent_channels"]
    pipeline = files.config("model_index").get("_class_name", PIPELINES[0])
    if config["in_channels"] not in (channels, 2 * channels):
        return f"it has {config['in_channels']} input channels, not {channels} or {2 * channels}"
    if pipeline not in PIPELINES:
        return f"it is made for {pipeline}"
    if scheduler and scheduler.get("prediction_type") != "v_prediction":
        return f"it predicts {scheduler.get('prediction_type', 'epsilon')}, not v_prediction"
    if scheduler and not scheduler.get("rescale_betas_zero_snr"):
        return "its noise schedule does not end in pure noise (rescale_betas_zero_snr)"
    return ""
