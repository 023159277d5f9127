"""Texts that see a picture, as HunyuanVideo's image-to-video models read them: a Llava's hidden states of picture and text.

Source: diffusers' HunyuanVideoImageToVideoPipeline (pipeline_hunyuan_video_image2video.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base import TextEncoder
from ..files import ModelFiles
from ..loading import empty_model
from ..text_encoders import load_tokenizers
from .text import LAYER, PARTS, TEXT_LENGTH, module_of, pooled, tokens_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import LlavaForConditionalGeneration

IMAGE = "<image>"  # the token of the picture in the template
BETWEEN = ("linear_1.weight", "linear_1.bias", "linear_2.weight", "linear_2.bias")  # that make a Llama's embeddings of what is seen
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
    """Tokenizers "llama" and "clip" and the image processor "image"; encoders "llama", which is a Llava, and "clip", on the CPU.

    The Llava is one part, or a Llama and an image encoder. Its words are not asked for, so that it has no layer that makes them.
    """
    from torch.nn import Identity, ModuleDict
    from transformers import CLIPImageProcessor, CLIPTextModel, LlavaForConditionalGeneration

    made, folder = load_tokenizers(files, PARTS), files.folder("image_processor")
    if files.has("image_encoder"):
        llava = _joined(files, dtype, made["llama"].convert_tokens_to_ids(IMAGE))
        size = files.config("image_encoder")["image_size"]
        processor = CLIPImageProcessor.from_pretrained(folder, size={"shortest_edge": size}, crop_size={"height": size, "width": size})
    else:
        llava = files.load("text_encoder", LlavaForConditionalGeneration, dtype)
        processor = CLIPImageProcessor.from_pretrained(folder)
    llava.set_output_embeddings(Identity())
    modules = {"llama": llava, "clip": files.load("text_encoder_2", CLIPTextModel, dtype)}
    return TextEncoder({**made, "image": processor}, ModuleDict(modules).requires_grad_(False).eval())


def _joined(files: ModelFiles, dtype: torch.dtype, image: int) -> LlavaForConditionalGeneration:
    """A Llava of a Llama and, from a file of their own, a CLIP vision encoder and the layers between; `image` is its token of a patch."""
    from transformers import CLIPVisionModel, LlamaModel, LlavaConfig, LlavaForConditionalGeneration

    between = {name: files.tensor("image_encoder", f"multi_modal_projector.{name}").to(dtype) for name in BETWEEN}
    language, vision = files.load("text_encoder", LlamaModel, dtype), files.load("image_encoder", CLIPVisionModel, dtype)
    config = LlavaConfig(text_config=language.config.to_dict(), vision_config=vision.config.to_dict(), image_token_index=image)
    llava = empty_model(LlavaForConditionalGeneration, config.to_dict())
    llava.set_decoder(language)
    parts: Any = getattr(llava, "model", llava)  # transformers 4.52 put them into a model of their own
    parts.vision_tower = vision
    parts.multi_modal_projector.load_state_dict(between, assign=True)
    return llava


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
