"""HunyuanVideo's single files: how they are told from their headers, and what is read there."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

from ..key_map import KeyMap, Rule
from ..layout import Config, FileLayout, PartKind, Told, latent_channels
from ..shapes import Shapes
from ..vae_keys import vae_rules
from . import keys

HEAD_SIZE = 128  # of all releases
NEWER = ("cond_type_embedding.weight", "vision_in.proj.0.weight")  # HunyuanVideo-1.5, a family of its own, has these
OTHER_VARIANTS = {  # a tensor that only this variant has -> what it is
    "byt5_in.fc1.weight": "HunyuanImage",
    "time_r_in.in_layer.weight": "HunyuanImage",
    "time_r_in.mlp.0.weight": "HunyuanImage",
}
ENCODERS = {"text_encoder": "llama", "text_encoder_2": "clip-text"}
TOKENIZERS = {"tokenizer": "text_encoders/llama_tokenizer", "tokenizer_2": "sd1_tokenizer"}
AGREEMENTS = (
    ("transformer", "text_embed_dim", "text_encoder", "hidden_size"),
    ("transformer", "pooled_projection_dim", "text_encoder_2", "hidden_size"),
)


def _transformer(shapes: Shapes) -> Told | None:
    """The configuration of HunyuanVideoTransformer3DModel, but for its form of image-to-video."""
    if "txt_in.individual_token_refiner.blocks.0.norm1.weight" not in shapes or shapes.keys() & set(NEWER):
        return None
    width, channels, *patch = shapes["img_in.proj.weight"]
    if other := next((what for name, what in OTHER_VARIANTS.items() if name in shapes), "" if len(patch) == 3 else "HunyuanImage"):
        return Told(unsupported=other)
    area = patch[0] * patch[1] * patch[2]
    out = shapes["final_layer.linear.weight"][0] // area
    if channels == 2 * out:
        return Told(unsupported="SkyReels image-to-video")
    heads = max(width // HEAD_SIZE, 1)
    wide = shapes.get("double_blocks.0.img_mlp.fc1.weight") or shapes["double_blocks.0.img_mlp.0.weight"]
    return Told({
        "in_channels": channels, "out_channels": out, "patch_size_t": patch[0], "patch_size": patch[1],
        "num_attention_heads": heads, "attention_head_dim": width // heads, "mlp_ratio": wide[0] / width,
        "num_layers": shapes.count("double_blocks.*."), "num_single_layers": shapes.count("single_blocks.*."),
        "num_refiner_layers": shapes.count("txt_in.individual_token_refiner.blocks.*."),
        "guidance_embeds": any(name.startswith("guidance_in.") for name in shapes),
        "text_embed_dim": shapes["txt_in.input_embedder.weight"][1], "pooled_projection_dim": shapes["vector_in.in_layer.weight"][1],
    })  # fmt: skip


def _form(config: Config) -> Hashable:
    """Files of text-to-video and token replace look alike, unless they are ours and say which they are."""
    return config["in_channels"], config["out_channels"], config.get("image_condition_type")


def _vae(shapes: Shapes) -> Told | None:
    """The configuration of AutoencoderKLHunyuanVideo."""
    ours = "decoder.mid_block.attentions.0.to_q.weight" in shapes
    if len(shapes["decoder.conv_in.conv.weight"]) != 5 or len(shapes["post_quant_conv.weight"]) != 5:
        return None
    if not ours and "decoder.mid.attn_1.q.weight" not in shapes:
        return None
    stage, block = ("encoder.down_blocks.{}.", "resnets.{}.") if ours else ("encoder.down.{}.", "block.{}.")
    widths = [shapes[stage.format(n) + block.format(0) + "conv1.conv.weight"][0] for n in range(shapes.count(stage.replace("{}", "*")))]
    return Told({
        "block_out_channels": widths, "layers_per_block": shapes.count(stage.format(0) + block.replace("{}", "*")),
        "latent_channels": shapes["decoder.conv_in.conv.weight"][1], "in_channels": shapes["encoder.conv_in.conv.weight"][1],
        "out_channels": shapes["decoder.conv_out.conv.weight"][0],
    })  # fmt: skip


def _vae_keys(config: Config) -> KeyMap:
    """Names of diffusers, which the original release has too, and of ComfyUI's class."""
    rules = [Rule("quant_conv", "quant_conv"), Rule("post_quant_conv", "post_quant_conv")]
    rules += vae_rules(len(config["block_out_channels"]), ".conv")
    own = [Rule(module, module) for rule in rules for module in rule.modules]
    return KeyMap([*own, *rules], prefix="")


VAE = PartKind("a HunyuanVideo VAE", _vae, _vae_keys, latent_channels)
LAYOUT = FileLayout(
    configs=Path(__file__).parent / "configs",
    transformer=PartKind("a HunyuanVideo diffusion model", _transformer, lambda _: keys.FILE, _form),
    vaes=(VAE,),
    encoders={**ENCODERS, "image_encoder": "llava-vision"},
    tokenizers=TOKENIZERS,
    agreements=(*AGREEMENTS, ("text_encoder", "hidden_size", "image_encoder", "language_size")),
    file_names={"i2v-replace": r"replace|i2v|image.to.video", "t2v-fast": r"fast.?(video|hunyuan)"},
)
