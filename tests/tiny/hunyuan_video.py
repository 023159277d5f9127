"""Random HunyuanVideo models of all three forms as ordinary diffusers folders, and what their pipelines compute."""

import re
from functools import partial
from pathlib import Path

import torch
from diffusers.pipelines.hunyuan_video import pipeline_hunyuan_video as t2v
from diffusers.pipelines.hunyuan_video import pipeline_hunyuan_video_image2video as i2v
from PIL.Image import Image
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing
from transformers import (
    CLIPImageProcessor,
    CLIPTextConfig,
    CLIPTextModel,
    CLIPVisionConfig,
    LlamaConfig,
    LlamaModel,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedTokenizerFast,
)

from tests.tiny import Size
from tests.tiny.capture import Point, calls_of

BEGIN, END, PAD, IMAGE = "<|begin_of_text|>", "<|end_of_text|>", "<pad>", "<image>"
TEXT_WIDTH, POOLED_WIDTH, VOCABULARY = 16, 8, 400
PIECE = re.compile(r"<[^<>]*>|\n+| ?[A-Za-z]+|\S")  # of the templates, as Llama 3's tokenizer parts them


def write_llama_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """A tokenizer of bytes to which the words of the pipelines' prompt templates are one token each, as they are to Llama 3."""
    templates = [t2v.DEFAULT_PROMPT_TEMPLATE, i2v.DEFAULT_PROMPT_TEMPLATE]
    words = [piece for template in templates for piece in PIECE.findall(template["template"].replace("{}", ""))]
    tokenizer = _byte_tokenizer([PAD, *words], begin=BEGIN)
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BEGIN, eos_token=END, pad_token=PAD, padding_side="right")
    for template in templates:
        assert len(made(template["template"].partition("{}")[0]).input_ids) == template["crop_start"]
    made.save_pretrained(folder)
    return made


def write_clip_text(folder: Path, part: str = "_2", width: int = POOLED_WIDTH) -> None:
    """A CLIP text encoder and its tokenizer of bytes."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_byte_tokenizer([], begin=BEGIN, end=END), bos_token=BEGIN, eos_token=END, pad_token=END, model_max_length=77
    )
    tokenizer.save_pretrained(folder / f"tokenizer{part}")
    config = CLIPTextConfig(
        vocab_size=len(tokenizer), hidden_size=width, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
        initializer_factor=10.0,
    )  # fmt: skip
    CLIPTextModel(config).save_pretrained(folder / f"text_encoder{part}")


def llama_config(pad: int) -> LlamaConfig:
    """Four layers, so that the layer that is read is not the embedding."""
    return LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=TEXT_WIDTH, intermediate_size=32, num_hidden_layers=4, num_attention_heads=2,
        num_key_value_heads=1, initializer_range=0.2, pad_token_id=pad,
    )  # fmt: skip


def write_vae(folder: Path) -> None:
    """An AutoencoderKLHunyuanVideo of the released one's strides and scale."""
    from diffusers import AutoencoderKLHunyuanVideo

    AutoencoderKLHunyuanVideo(block_out_channels=(8, 8, 8, 8), layers_per_block=1, norm_num_groups=4).save_pretrained(folder / "vae")


def write_transformer(folder: Path, **settings: object) -> None:
    """A HunyuanVideoTransformer3DModel of two layers of each kind."""
    from diffusers import HunyuanVideoTransformer3DModel

    HunyuanVideoTransformer3DModel(
        num_attention_heads=2, attention_head_dim=12, num_layers=2, num_single_layers=2, rope_axes_dim=(4, 4, 4),
        text_embed_dim=TEXT_WIDTH, pooled_projection_dim=POOLED_WIDTH, **settings,
    ).save_pretrained(folder / "transformer")  # fmt: skip


def write_t2v(folder: Path, seed: int = 0, **settings: object) -> Path:
    """Writes a text-to-video model and returns its folder."""
    torch.manual_seed(seed)
    write_transformer(folder, **settings)
    tokenizer = write_llama_tokenizer(folder / "tokenizer")
    LlamaModel(llama_config(tokenizer.pad_token_id)).save_pretrained(folder / "text_encoder")
    return _rest(folder, "HunyuanVideoPipeline")


def write_i2v(folder: Path, seed: int = 0, **settings: object) -> Path:
    """Writes an image-to-video model and returns its folder; its Llava sees 24 x 24 patches of 2 px."""
    torch.manual_seed(seed)
    write_transformer(folder, **settings)
    tokenizer = write_llama_tokenizer(folder / "tokenizer")
    vision = CLIPVisionConfig(
        hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=48, patch_size=2,
        projection_dim=8, initializer_factor=3.0,
    )  # fmt: skip
    config = LlavaConfig(
        vision_config=vision, text_config=llama_config(tokenizer.pad_token_id), image_token_index=tokenizer.convert_tokens_to_ids(IMAGE),
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    LlavaForConditionalGeneration(config).save_pretrained(folder / "text_encoder")
    CLIPImageProcessor(size={"shortest_edge": 48}, crop_size={"height": 48, "width": 48}).save_pretrained(folder / "image_processor")
    return _rest(folder, "HunyuanVideoImageToVideoPipeline")


write_i2v_concat = partial(write_i2v, image_condition_type="latent_concat", in_channels=33, guidance_embeds=False)
write_i2v_replace = partial(write_i2v, image_condition_type="token_replace")


def load_pipeline(folder: Path) -> t2v.HunyuanVideoPipeline | i2v.HunyuanVideoImageToVideoPipeline:
    """The folder's own pipeline."""
    from diffusers import AutoencoderKLHunyuanVideo, FlowMatchEulerDiscreteScheduler, HunyuanVideoTransformer3DModel
    from transformers import AutoTokenizer

    parts = {
        "vae": AutoencoderKLHunyuanVideo.from_pretrained(folder / "vae"),
        "scheduler": FlowMatchEulerDiscreteScheduler.from_pretrained(folder / "scheduler"),
        "transformer": HunyuanVideoTransformer3DModel.from_pretrained(folder / "transformer"),
        "tokenizer": AutoTokenizer.from_pretrained(folder / "tokenizer"),
        "tokenizer_2": AutoTokenizer.from_pretrained(folder / "tokenizer_2"),
        "text_encoder_2": CLIPTextModel.from_pretrained(folder / "text_encoder_2"),
    }
    if (folder / "image_processor").is_dir():
        encoder = LlavaForConditionalGeneration.from_pretrained(folder / "text_encoder")
        processor = CLIPImageProcessor.from_pretrained(folder / "image_processor")
        pipeline = i2v.HunyuanVideoImageToVideoPipeline(**parts, text_encoder=encoder, image_processor=processor)
    else:
        pipeline = t2v.HunyuanVideoPipeline(**parts, text_encoder=LlamaModel.from_pretrained(folder / "text_encoder"))
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def pipeline_points(folder: Path, prompt: str, size: Size, pictures: dict[str, Image]) -> list[Point]:
    """What either pipeline's transformer is called with and gives: its output is the velocity, its time 1000 times the noise level.

    Latent concat's input ends with the picture and a mask; of token replace the first latent frame is the picture.
    """
    pipeline, (frames, height, width) = load_pipeline(folder), size
    given = {"image": pictures["first_frame"]} if pictures else {}
    with calls_of(pipeline.transformer) as calls:
        pipeline(
            prompt=prompt, height=height, width=width, num_frames=frames, num_inference_steps=3, output_type="latent",
            guidance_scale=6.0, generator=torch.Generator().manual_seed(5), **given,
        )  # fmt: skip
    return [Point(call.kwargs["hidden_states"][:, :16], call.kwargs["timestep"][0].item() / 1000, call.output) for call in calls]


def _byte_tokenizer(words: list[str], begin: str, end: str = "") -> Tokenizer:
    """Every byte is a token, and so is each of `words`; texts get `begin` before them and `end` after them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE({character: place for place, character in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(word, normalized=False, special=True) for word in dict.fromkeys([BEGIN, END, *words])])
    marks = [(mark, tokenizer.token_to_id(mark)) for mark in (begin, end) if mark]
    tokenizer.post_processor = TemplateProcessing(single=f"{begin} $A {end}".strip(), special_tokens=marks)
    return tokenizer


def _rest(folder: Path, pipeline: str) -> Path:
    from diffusers import FlowMatchEulerDiscreteScheduler

    write_clip_text(folder)
    write_vae(folder)
    FlowMatchEulerDiscreteScheduler(shift=7.0).save_pretrained(folder / "scheduler")
    (folder / "model_index.json").write_text(f'{{"_class_name": "{pipeline}"}}', encoding="utf-8")
    return folder
