"""FramePack's single files: how they are told from their headers. Their tensors have diffusers' names, which the wrapper reads."""

from __future__ import annotations

from pathlib import Path

from ..hunyuan_video.single_files import AGREEMENTS, ENCODERS, HEAD_SIZE, TOKENIZERS, VAE
from ..layout import FileLayout, PartKind, Told
from ..shapes import Shapes


def _transformer(shapes: Shapes) -> Told | None:
    """The configuration of HunyuanVideoFramepackTransformer3DModel; whether it can be trained is for the family to say."""
    clean, image = "clean_x_embedder.proj.weight" in shapes, shapes.get("image_projection.up.weight")
    if "context_embedder.token_refiner.refiner_blocks.0.norm1.weight" not in shapes or not (clean or image):
        return None
    width, channels, *patch = shapes["x_embedder.proj.weight"]
    heads = max(width // HEAD_SIZE, 1)
    return Told({
        "in_channels": channels, "out_channels": shapes["proj_out.weight"][0] // (patch[0] * patch[1] * patch[2]),
        "patch_size_t": patch[0], "patch_size": patch[1], "num_attention_heads": heads, "attention_head_dim": width // heads,
        "mlp_ratio": shapes["transformer_blocks.0.ff.net.0.proj.weight"][0] / width,
        "num_layers": shapes.count("transformer_blocks.*."), "num_single_layers": shapes.count("single_transformer_blocks.*."),
        "num_refiner_layers": shapes.count("context_embedder.token_refiner.refiner_blocks.*."),
        "guidance_embeds": any(name.startswith("time_text_embed.guidance_embedder.") for name in shapes),
        "text_embed_dim": shapes["context_embedder.proj_in.weight"][1],
        "pooled_projection_dim": shapes["time_text_embed.text_embedder.linear_1.weight"][1],
        "has_clean_x_embedder": clean, "has_image_proj": image is not None, **({"image_proj_dim": image[1]} if image else {}),
    })  # fmt: skip


LAYOUT = FileLayout(
    configs=Path(__file__).parent / "configs",
    transformer=PartKind("a FramePack diffusion model", _transformer),
    vaes=(VAE,),
    encoders={**ENCODERS, "image_encoder": "siglip-vision"},
    tokenizers=TOKENIZERS,
    agreements=(*AGREEMENTS, ("transformer", "image_proj_dim", "image_encoder", "hidden_size")),
)
