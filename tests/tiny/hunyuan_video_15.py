"""Random HunyuanVideo-1.5 models, from text and from a first frame, as ordinary diffusers folders, and what their pipelines compute."""

import json
import re
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Image
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from tests.tiny import Size
from tests.tiny.capture import Point, calls_of

TEXT, GLYPHS, SEEN, VOCABULARY = 16, 12, 8, 400  # widths of the embeddings
TRANSFORMER: dict[str, Any] = {
    "num_attention_heads": 2, "attention_head_dim": 24, "num_layers": 2, "num_refiner_layers": 2, "rope_axes_dim": (8, 8, 8),
    "text_embed_dim": TEXT, "text_embed_2_dim": GLYPHS, "image_embed_dim": SEEN, "target_size": 32,
}  # fmt: skip
VAE: dict[str, Any] = {"block_out_channels": (4, 8, 16, 32, 64), "layers_per_block": 1}
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PIECE = re.compile(r"<\|[a-z_]+\|>|\s+(?=\s\S)|[^\n\w]?[A-Za-z]+|\d| ?[^\s\w<]+|\n+|\s")  # as Qwen's tokenizer parts the template


def write_t2v(folder: Path) -> Path:
    """Text-to-video."""
    return write_tiny(folder, "t2v")


def write_i2v(folder: Path) -> Path:
    """Image-to-video: the same transformer, with an image encoder."""
    return write_tiny(folder, "i2v")


def write_tiny(folder: Path, task: str, seed: int = 0, **transformer: Any) -> Path:
    """Writes the folder of a task and returns it."""
    from diffusers import AutoencoderKLHunyuanVideo15, ClassifierFreeGuidance, FlowMatchEulerDiscreteScheduler
    from transformers import ByT5Tokenizer, T5Config, T5EncoderModel

    torch.manual_seed(seed)
    tiny_transformer(task_type=task, **transformer).save_pretrained(folder / "transformer")
    AutoencoderKLHunyuanVideo15(**VAE).save_pretrained(folder / "vae")
    _write_qwen(folder)
    text = T5Config(vocab_size=384, d_model=GLYPHS, d_kv=6, d_ff=16, num_layers=1, num_heads=2, feed_forward_proj="gated-gelu")
    T5EncoderModel(text).save_pretrained(folder / "text_encoder_2")
    ByT5Tokenizer().save_pretrained(folder / "tokenizer_2")
    FlowMatchEulerDiscreteScheduler(shift=5.0).save_pretrained(folder / "scheduler")
    ClassifierFreeGuidance(guidance_scale=4.0).save_pretrained(folder / "guider")
    if task == "i2v":
        _write_image_encoder(folder)
    pipeline = "HunyuanVideo15ImageToVideoPipeline" if task == "i2v" else "HunyuanVideo15Pipeline"
    (folder / "model_index.json").write_text(json.dumps({"_class_name": pipeline}), encoding="utf-8")
    return folder


def tiny_transformer(**changes: Any) -> Any:
    """A random transformer whose norms are not at their plain start."""
    from diffusers import HunyuanVideo15Transformer3DModel

    transformer = HunyuanVideo15Transformer3DModel(**{**TRANSFORMER, **changes})
    for name, parameter in transformer.named_parameters():
        if parameter.dim() == 1 and "norm" in name:
            parameter.data.add_(0.2 * torch.randn_like(parameter))
    return transformer


def _write_qwen(folder: Path) -> None:
    """Four layers, so that the layer that is read is not the embedding, and a tokenizer of bytes.

    The pieces of the pipeline's template are one token each, as they are to Qwen's: the text begins at its place there.
    """
    from diffusers import HunyuanVideo15Pipeline
    from transformers import PreTrainedTokenizerFast, Qwen2_5_VLTextConfig, Qwen2_5_VLTextModel

    message = signature(HunyuanVideo15Pipeline._get_mllm_prompt_embeds).parameters["system_message"].default
    start = f"<|im_start|>system\n{message}<|im_end|>\n<|im_start|>user\n"
    pieces = [piece for piece in dict.fromkeys(PIECE.findall(start)) if len(piece) > 1]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE({character: place for place, character in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(piece, normalized=False, special=True) for piece in ["<|endoftext|>", *pieces]])
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<|endoftext|>", padding_side="right", chat_template=CHAT)
    assert len(made(start).input_ids) == 108, len(made(start).input_ids)
    made.save_pretrained(folder / "tokenizer")
    config = Qwen2_5_VLTextConfig(
        vocab_size=VOCABULARY, hidden_size=TEXT, intermediate_size=32, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [1, 1, 2]}, initializer_range=0.2, pad_token_id=256,
    )  # fmt: skip
    Qwen2_5_VLTextModel(config).save_pretrained(folder / "text_encoder")


def _write_image_encoder(folder: Path) -> None:
    """Four patches for each picture."""
    from transformers import SiglipImageProcessor, SiglipVisionConfig, SiglipVisionModel

    config = SiglipVisionConfig(
        hidden_size=SEEN, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14
    )  # fmt: skip
    SiglipVisionModel(config).save_pretrained(folder / "image_encoder")
    SiglipImageProcessor(size={"height": 28, "width": 28}).save_pretrained(folder / "feature_extractor")


def tiny_pipeline(folder: Path, guidance: float = 1.0) -> Any:
    """The pipeline that the folder names, with a guidance of its own."""
    import diffusers
    import transformers

    parts = {
        "transformer": "HunyuanVideo15Transformer3DModel", "vae": "AutoencoderKLHunyuanVideo15",
        "scheduler": "FlowMatchEulerDiscreteScheduler", "text_encoder": "Qwen2_5_VLTextModel", "text_encoder_2": "T5EncoderModel",
        "tokenizer": "AutoTokenizer", "tokenizer_2": "AutoTokenizer", "image_encoder": "SiglipVisionModel",
        "feature_extractor": "SiglipImageProcessor",
    }  # fmt: skip
    found: dict[str, Any] = {name: kind for name, kind in parts.items() if (folder / name).is_dir()}
    for name, kind in found.items():
        found[name] = getattr(diffusers if hasattr(diffusers, kind) else transformers, kind).from_pretrained(folder / name)
    kind = getattr(diffusers, json.loads((folder / "model_index.json").read_text(encoding="utf-8"))["_class_name"])
    pipeline = kind(**found, guider=diffusers.ClassifierFreeGuidance(guidance_scale=guidance))
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def pipeline_points(folder: Path, prompt: str, size: Size, pictures: dict[str, Image]) -> list[Point]:
    """The pipeline's steps without guidance: its transformer's output is the velocity, its time 1000 times the noise level."""
    pipeline, (frames, height, width) = tiny_pipeline(folder), size
    given = {"image": pictures["first_frame"]} if pictures else {"height": height, "width": width}
    with calls_of(pipeline.transformer) as calls:
        pipeline(prompt=prompt, num_frames=frames, num_inference_steps=3, output_type="latent", **given)
    return [Point(call.kwargs["hidden_states"][:, :32], call.kwargs["timestep"][0].item() / 1000, call.output) for call in calls]
