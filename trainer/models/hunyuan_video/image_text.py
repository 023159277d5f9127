"""Texts that see a picture, as HunyuanVideo's image-to-video models read them: a Llava's hidden states of picture and text.

Source: diffusers' HunyuanVideoImageToVideoPipeline (pipeline_hunyuan_video_image2video.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base import TextEncoder
from ..files import ModelFiles
from .text import LAYER, TEXT_LENGTH, module_of, pooled, tokenizers, tokens_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

IMAGE_TOKENS = 576  # of a picture of 336 x 336 px in patches of 14
CROP = 103  # tokens of the template before the text; the picture is one of them
IMAGE_PLACE = 5  # among them
END_OF_TURN = 4  # tokens that end the text and head the answer; they are left out
TEMPLATE = (
    "<|start_header_id|>system<|end_header_id|>\n\n<image>\n"
    "Describe the video by detailing the following aspects according to the reference image: "
    "1. The main content and theme of the video."
    "2. The color, shape, size, texture, quantity, text, and spatial relationships of the objects."
    "3. Actions, events, behaviors temporal relationships, physical movement changes of the objects."
    "4. background environment, light, style and atmosphere."
    "5. camera angles, movements, and transitions used in the video:<|eot_id|>\n\n"
    "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
)


def length(stride: int) -> int:
    """Tokens that the transformer sees: every `stride`th of the picture's, and the text's."""
    return -(-IMAGE_TOKENS // stride) + TEXT_LENGTH - END_OF_TURN


def load_text_encoder(files: ModelFiles, dtype: torch.dtype) -> TextEncoder:
    """Tokenizers "llama" and "clip" and the image processor "image"; encoders "llama", which is a Llava, and "clip", on the CPU."""
    from torch.nn import ModuleDict
    from transformers import CLIPImageProcessor, CLIPTextModel, LlavaForConditionalGeneration

    llava = files.load("text_encoder", LlavaForConditionalGeneration, dtype)
    modules = {"llama": llava, "clip": files.load("text_encoder_2", CLIPTextModel, dtype)}
    processor = CLIPImageProcessor.from_pretrained(files.folder("image_processor"))
    return TextEncoder({**tokenizers(files), "image": processor}, ModuleDict(modules).requires_grad_(False).eval())


def encode_text(encoder: TextEncoder, text: str, image: Tensor | None, stride: int) -> dict[str, Tensor]:
    """{"text": [L, 4096], "pooled": [768]} float32: the picture's tokens before the text's, L <= length(stride).

    `image` is [H, W, 3] uint8; without one it is black, as the pipeline has it for negative prompts.
    """
    import torch
    from PIL import Image

    picture = Image.new("RGB", (64, 64)) if image is None else Image.fromarray(image.cpu().numpy())
    llava = module_of(encoder, "llama")
    parameter = next(llava.parameters())
    pixels = encoder.tokenizer["image"](picture, return_tensors="pt").pixel_values.to(parameter.device, parameter.dtype)
    tokens = tokens_of(encoder, text, TEMPLATE.format(text), CROP + TEXT_LENGTH)[0]
    seen = tokens.new_full((IMAGE_TOKENS,), llava.config.image_token_index)
    ids = torch.cat([tokens[:IMAGE_PLACE], seen, tokens[IMAGE_PLACE + 1 :]])[None].to(parameter.device)
    hidden = llava(input_ids=ids, pixel_values=pixels, output_hidden_states=True, logits_to_keep=1).hidden_states[LAYER][0]
    shown, said = hidden[IMAGE_PLACE : IMAGE_PLACE + IMAGE_TOKENS : stride], hidden[IMAGE_TOKENS - 1 :]  # said: at its tokens' places
    end = _end_of_header(encoder, tokens)
    kept = torch.cat([shown, said[CROP : end - END_OF_TURN], said[end:]])
    return {"text": kept.float().cpu(), "pooled": pooled(encoder, text)}


def _end_of_header(encoder: TextEncoder, tokens: Tensor) -> int:
    """Where the header of the answer ends: the last of three headers, or the end of a text that was cut before it."""
    ends = (tokens == encoder.tokenizer["llama"].convert_tokens_to_ids("<|end_header_id|>")).nonzero().flatten()
    return len(tokens) if len(ends) == 2 else int(ends[-1]) + 1
