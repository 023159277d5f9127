"""Small models in the layout of the files that ComfyUI's own workflows name, as far as its loaders leave their sizes free."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from tests.tiny.cogvideox import tiny_transformer as tiny_cogvideox
from tests.tiny.cogvideox import write_5b
from tests.tiny.framepack import write_framepack
from tests.tiny.hidream import write_tiny_hidream
from tests.tiny.hunyuan_video import write_t2v
from tests.tiny.hunyuan_video_15 import tiny_transformer as tiny_hunyuan_15
from tests.tiny.hunyuan_video_15 import write_t2v as write_t2v_15
from tests.tiny.ltx_video import write_tiny_ltx_095
from tests.tiny.mochi import write_tiny_mochi
from tests.tiny.single_files import quantised, read, write_single_files
from tests.tiny.wan import CHANNELS, VAE, VAE_OF_5B, write_tiny_wan

Size = tuple[int, int, int]  # frames, height, width
LAYOUTS = {"scaled": "old", "fp8": "plain"}  # what a file's name says of its matrices, and how they are then stored
KINDS = {"transformer": "diffusion_models", "transformer_low": "diffusion_models", "vae": "vae", "image_encoder": "clip_vision"}
T5: dict[str, Any] = {  # the layers and the feed-forward's width by which core knows the large T5
    "d_model": 16, "d_kv": 8, "d_ff": 10240, "num_layers": 24, "num_heads": 2, "feed_forward_proj": "gated-gelu",
}  # fmt: skip
LLAMA = "text_encoders/llama_tokenizer/tokenizer.json"
BLOCKS = {"num_res_blocks": 2}  # of Wan's VAEs: core takes no other


@dataclass(frozen=True)
class Example:
    """A workflow's model and the size that it is trained and sampled at; `write` takes a folder and makes a diffusers folder of it."""

    workflow: str
    write: Callable[[Path], object]
    size: Size
    checkpoint: bool = False  # diffusion model and VAE lie in one file
    tokenizer: str = ""  # a file of core's, large enough to be missing in some copies of it

    def __str__(self) -> str:
        return self.workflow

    def put(self, chosen: dict[str, str], models: Path, scratch: Path) -> None:
        """Writes the files that Load Model Files for Training has `chosen` below ComfyUI's folder of models."""
        self.write(scratch / "folder")
        files = write_single_files(scratch / "folder", scratch / "files")
        made = {name: getattr(files, name) for name in KINDS} | {f"text_encoder_{n}": file for n, file in enumerate(files.text_encoders, 1)}
        if self.checkpoint:
            made["transformer"] = str(together(Path(made["transformer"]), Path(made.pop("vae")), scratch / "checkpoint.safetensors"))
        for name, file in made.items():
            if not file:
                continue
            target = models / ("checkpoints" if self.checkpoint and name == "transformer" else KINDS.get(name, "text_encoders")) / chosen[name]
            target.parent.mkdir(parents=True, exist_ok=True)
            if layout := next((layout for said, layout in LAYOUTS.items() if said in target.name), ""):
                quantised(file, target, layout)
            else:
                Path(file).rename(target)


def together(transformer: Path, vae: Path, to: Path) -> Path:
    """Two files as one checkpoint, their metadata joined part by part."""
    (first, told), (second, more) = read(transformer), read(vae)
    tensors = {f"model.diffusion_model.{name}": tensor for name, tensor in first.items()}
    tensors |= {f"vae.{name}": tensor for name, tensor in second.items()}
    metadata = {name: json.dumps(json.loads(told.get(name, "{}")) | json.loads(more.get(name, "{}"))) for name in {*told, *more}}
    save_file(tensors, to, metadata)
    return to


def _umt5(folder: Path) -> None:
    from transformers import UMT5Config, UMT5EncoderModel

    UMT5EncoderModel(UMT5Config(vocab_size=384, **T5)).save_pretrained(folder / "text_encoder")


def _t5(folder: Path, part: str = "text_encoder") -> None:
    """With an embedding for each token of the tokenizer that comes with ComfyUI."""
    from transformers import T5Config, T5EncoderModel

    T5EncoderModel(T5Config(vocab_size=32128, **T5)).save_pretrained(folder / part)


def _image_encoder(folder: Path) -> None:
    """Deep enough to be known as the large CLIP."""
    from transformers import CLIPVisionConfig, CLIPVisionModel

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 32, "num_attention_heads": 2}
    CLIPVisionModel(CLIPVisionConfig(**sizes, image_size=224, patch_size=112)).save_pretrained(folder / "image_encoder")


def _wan_i2v(folder: Path) -> None:
    write_tiny_wan(folder, sees=True, in_channels=2 * CHANNELS + 4, vae={**VAE, **BLOCKS})
    _umt5(folder)
    _image_encoder(folder)


def _wan_two(folder: Path) -> None:
    write_tiny_wan(folder, experts=2, index={"boundary_ratio": 0.875}, vae={**VAE, **BLOCKS})
    _umt5(folder)


def _wan_5b(folder: Path) -> None:
    write_tiny_wan(folder, vae={**VAE_OF_5B, **BLOCKS}, index={"expand_timesteps": True}, num_attention_heads=6)
    _umt5(folder)


def _ltx(folder: Path) -> None:
    write_tiny_ltx_095(folder)
    _t5(folder)


def _hunyuan_texts(folder: Path) -> None:
    """With core's vocabularies, and its head size in the Llama."""
    from transformers import CLIPTextConfig, CLIPTextModel, LlamaConfig, LlamaModel

    llama = LlamaConfig(
        vocab_size=128320, hidden_size=16, intermediate_size=32, num_hidden_layers=4, num_attention_heads=1, num_key_value_heads=1,
        head_dim=128,
    )  # fmt: skip
    LlamaModel(llama).save_pretrained(folder / "text_encoder")
    clip = CLIPTextConfig(vocab_size=49408, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2)
    CLIPTextModel(clip).save_pretrained(folder / "text_encoder_2")


def _hunyuan(folder: Path) -> None:
    """One head of the released size in each layer, since core counts heads by it; the VAE has as many channels as norms have groups."""
    from diffusers import AutoencoderKLHunyuanVideo, HunyuanVideoTransformer3DModel

    write_t2v(folder)
    HunyuanVideoTransformer3DModel(
        num_attention_heads=1, num_layers=1, num_single_layers=1, text_embed_dim=16, pooled_projection_dim=16
    ).save_pretrained(folder / "transformer")
    AutoencoderKLHunyuanVideo(block_out_channels=(32, 64, 128, 128)).save_pretrained(folder / "vae")
    _hunyuan_texts(folder)


def _framepack(folder: Path) -> None:
    from diffusers import HunyuanVideoFramepackTransformer3DModel

    write_framepack(folder)
    HunyuanVideoFramepackTransformer3DModel(
        num_attention_heads=1, num_layers=1, num_single_layers=1, text_embed_dim=16, pooled_projection_dim=16, has_image_proj=True,
        image_proj_dim=8, has_clean_x_embedder=True,
    ).save_pretrained(folder / "transformer")  # fmt: skip
    _hunyuan_texts(folder)


def _cogvideox(folder: Path) -> None:
    """One head of the released size; the VAE has as many channels as norms have groups."""
    from diffusers import AutoencoderKLCogVideoX

    write_5b(folder)
    tiny_cogvideox(num_attention_heads=1, attention_head_dim=64, use_rotary_positional_embeddings=True, max_text_seq_length=226).save_pretrained(
        folder / "transformer"
    )
    AutoencoderKLCogVideoX(block_out_channels=(32, 32, 32, 32), layers_per_block=1, scaling_factor=0.7).save_pretrained(folder / "vae")
    _t5(folder)


def _mochi(folder: Path) -> None:
    write_tiny_mochi(folder)
    _t5(folder)


def _hunyuan_15(folder: Path) -> None:
    """One head of the released size, and the widths of what it sees and of the letters in pictures, which core fixes."""
    from transformers import Qwen2_5_VLTextConfig, Qwen2_5_VLTextModel, T5Config, T5EncoderModel

    write_t2v_15(folder)
    tiny_hunyuan_15(
        task_type="t2v", num_attention_heads=1, attention_head_dim=128, rope_axes_dim=(16, 56, 56), text_embed_dim=128,
        text_embed_2_dim=1472, image_embed_dim=1152,
    ).save_pretrained(folder / "transformer")  # fmt: skip
    qwen = Qwen2_5_VLTextConfig(
        vocab_size=152064, hidden_size=128, intermediate_size=32, num_hidden_layers=4, num_attention_heads=1, num_key_value_heads=1,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
    )  # fmt: skip
    Qwen2_5_VLTextModel(qwen).save_pretrained(folder / "text_encoder")
    glyphs = T5Config(vocab_size=1510, d_model=1472, d_kv=8, d_ff=16, num_layers=1, num_heads=2, feed_forward_proj="gated-gelu")
    T5EncoderModel(glyphs).save_pretrained(folder / "text_encoder_2")


def _hidream(folder: Path) -> None:
    """One head of the released size, and depths by which core tells the text encoders apart."""
    from diffusers import AutoencoderKL, HiDreamImageTransformer2DModel
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection, LlamaConfig, LlamaForCausalLM

    write_tiny_hidream(folder)
    HiDreamImageTransformer2DModel(
        patch_size=2, in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=128, num_attention_heads=1,
        caption_channels=[16, 16], text_emb_dim=32, axes_dims_rope=(64, 32, 32), llama_layers=[0, 1],
    ).save_pretrained(folder / "transformer")  # fmt: skip
    for part, layers in (("text_encoder", 2), ("text_encoder_2", 32)):
        clip = CLIPTextConfig(
            vocab_size=49408, hidden_size=16, intermediate_size=32, num_hidden_layers=layers, num_attention_heads=2, projection_dim=16
        )
        CLIPTextModelWithProjection(clip).save_pretrained(folder / part)
    _t5(folder, "text_encoder_3")
    llama = LlamaConfig(
        vocab_size=128256, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=1, num_key_value_heads=1,
        head_dim=128,
    )  # fmt: skip
    LlamaForCausalLM(llama).save_pretrained(folder / "text_encoder_4")
    AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4, block_out_channels=(32, 64, 128, 128),
        layers_per_block=2, latent_channels=16, scaling_factor=0.3611, shift_factor=0.1159, use_quant_conv=False, use_post_quant_conv=False,
    ).save_pretrained(folder / "vae")  # fmt: skip


EXAMPLES = [
    Example("Wan 2.1 I2V 14B 480p", _wan_i2v, (5, 32, 32)),
    Example("Wan 2.2 T2V A14B", _wan_two, (5, 32, 32)),
    Example("Wan 2.2 TI2V 5B", _wan_5b, (5, 64, 64)),
    Example("LTX-Video 2B", _ltx, (9, 64, 64), checkpoint=True),
    Example("HunyuanVideo T2V", _hunyuan, (5, 32, 32), tokenizer=LLAMA),
    Example("FramePack", _framepack, (37, 32, 32), tokenizer=LLAMA),
    Example("CogVideoX 5B", _cogvideox, (9, 32, 32)),
    Example("Mochi 1", _mochi, (7, 32, 32)),
    Example("HunyuanVideo 1.5 T2V", _hunyuan_15, (5, 32, 32)),
    Example("HiDream I1", _hidream, (1, 64, 64), tokenizer=LLAMA),
]
