"""Models of full size with random weights, and random clips for them: what the benchmarks of training steps run on.

A model's folder has a configuration and no weights. Those are made module by module, quantised at once where that is asked for,
so that on the card there is never more than the model in the form that is measured, and one layer. `small` models have the same
inputs and two layers, for a CPU.
"""

from __future__ import annotations

import inspect
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from trainer.models.base import ModelFamily

Size = tuple[int, int, int]  # frames, height, width
DEVIATION = 0.02  # of random weights
SEED = 11
SIDE = -1  # in the shape of an input: the latents' height, then their width


@dataclass(frozen=True)
class Full:
    """A full-size model: whose tiny folder gives its small parts, its transformer's settings, the size trained at, and its inputs."""

    writer: str  # module:function below tests.tiny
    transformer: Mapping[str, Any]
    size: Size
    text: Mapping[str, tuple[int, ...]]
    given: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # beside the latents, as cached
    tokens: int = 0  # that texts are padded to, where the tokenizer says so
    small_size: Size = (5, 64, 64)
    small: Mapping[str, Any] = field(default_factory=dict)  # what a small one has otherwise, beside fewer layers and heads

    def shrunk(self) -> Full:
        """The same with two layers of few channels and short clips, for a CPU."""
        few = {"num_layers": 2, "num_single_layers": 2, "num_refiner_layers": 1, "num_attention_heads": 2, "ffn_dim": 256, **self.small}
        return replace(self, transformer={**self.transformer, **few}, size=self.small_size)


_WAN = {"attention_head_dim": 128, "text_dim": 4096, "in_channels": 16, "out_channels": 16}
_WAN_14B = {**_WAN, "num_attention_heads": 40, "num_layers": 40, "ffn_dim": 13824}
_COG = {"attention_head_dim": 64, "in_channels": 16, "out_channels": 16, "text_embed_dim": 4096, "sample_width": 90, "sample_height": 60}
_HIDREAM = {
    "patch_size": 2, "in_channels": 16, "attention_head_dim": 128, "num_attention_heads": 20, "caption_channels": [4096, 4096],
    "text_emb_dim": 2048, "num_routed_experts": 4, "num_activated_experts": 2, "axes_dims_rope": (64, 32, 32), "max_resolution": (128, 128),
    "llama_layers": [*range(32), *[31] * 16],
}  # fmt: skip
_UMT5 = {"text": (120, 4096)}
_HUNYUAN = {"text": (200, 4096), "pooled": (768,)}
FULL = {
    "Wan 2.1 14B": Full("wan:write_tiny_wan", _WAN_14B, (81, 480, 832), _UMT5, tokens=512),
    "Wan 2.1 1.3B": Full(
        "wan:write_tiny_wan", {**_WAN, "num_attention_heads": 12, "num_layers": 30, "ffn_dim": 8960}, (81, 480, 832), _UMT5, tokens=512
    ),
    "LTX-Video 2B": Full("ltx_video:write_tiny_ltx", {}, (121, 512, 768), {"text": (100, 4096)}, small={"cross_attention_dim": 128}),
    "CogVideoX-5B": Full(
        "cogvideox:write_5b",
        {**_COG, "num_attention_heads": 48, "num_layers": 42, "use_rotary_positional_embeddings": True},
        (49, 480, 720), {"text": (226, 4096)}, small_size=(9, 64, 64),
    ),
    "CogVideoX-2B": Full(
        "cogvideox:write_2b", {**_COG, "num_attention_heads": 30, "num_layers": 30}, (49, 480, 720), {"text": (226, 4096)},
        small_size=(9, 64, 64),
    ),
    "HunyuanVideo": Full("hunyuan_video:write_t2v", {"guidance_embeds": True}, (49, 512, 768), _HUNYUAN),
    "FramePack": Full(
        "framepack:write_framepack",
        {"has_image_proj": True, "image_proj_dim": 1152, "has_clean_x_embedder": True}, (37, 640, 640), _HUNYUAN,
        {"start": (16, 1, SIDE, SIDE), "image": (729, 1152)}, small_size=(37, 64, 64),
    ),
    "HunyuanVideo-1.5": Full(
        "hunyuan_video_15:write_t2v", {"task_type": "t2v"}, (49, 480, 832), {"text": (200, 3584), "glyphs": (0, 1472)}
    ),
    "Wan 2.2 5B": Full(
        "wan:write_tiny_ti2v",
        {"num_attention_heads": 24, "num_layers": 30, "ffn_dim": 14336, "in_channels": 48, "out_channels": 48},
        (121, 704, 1280), _UMT5, tokens=512,
    ),
    "Wan 2.2 A14B": Full("wan:write_tiny_a14b_t2v", _WAN_14B, (81, 480, 832), _UMT5, tokens=512),
    "Mochi 1": Full("mochi:write_tiny_mochi", {}, (37, 480, 848), {"text": (100, 4096)}, small_size=(7, 64, 64)),
    "HiDream-I1": Full(
        "hidream:write_tiny_hidream", {**_HIDREAM, "num_layers": 16, "num_single_layers": 32}, (1, 1024, 1024),
        {"pooled": (2048,), "t5": (128, 4096), "llama": (32, 128, 4096)}, small_size=(1, 128, 128), small={"llama_layers": [0, 1, 2, 3]},
    ),
}  # fmt: skip


@lru_cache(maxsize=4)
def folder_of(name: str, small: bool) -> tuple[Path, tempfile.TemporaryDirectory[str]]:
    """A folder, kept while it is held, whose transformers are of full size in name only: configurations without weights."""
    from tests.tiny import _function
    from trainer.models import open_model
    from trainer.models.loading import empty_model

    full, place = model(name, small), tempfile.TemporaryDirectory()
    folder = Path(place.name)
    _function(full.writer)(folder)
    family = open_model(folder)
    accepted = inspect.signature(family.transformer_class.__init__).parameters
    given = {key: value for key, value in full.transformer.items() if key in accepted}
    for expert in family.spec.experts:
        empty_model(family.transformer_class, given).save_config(folder / expert.part)
    if full.tokens:
        settings = folder / "tokenizer/tokenizer_config.json"
        told = {**json.loads(settings.read_text(encoding="utf-8")), "model_max_length": full.tokens}
        settings.write_text(json.dumps(told), encoding="utf-8")
    return folder, place


def model(name: str, small: bool) -> Full:
    """A model of the table."""
    return FULL[name].shrunk() if small else FULL[name]


def opened(name: str, small: bool = False) -> ModelFamily:
    """The family of a model of the table, unchecked: its small parts are not those of its configuration, and it has no weights."""
    from trainer.models import _in_folder

    kind, files = _in_folder(folder_of(name, small)[0])
    return kind(files)


@contextmanager
def random_weights(family: ModelFamily, device: torch.device, home: torch.device, form: str = "") -> Iterator[None]:
    """Inside the block the family's transformers are loaded with random weights: made on `device`, then moved to `home`.

    The linear layers of their blocks are of another `form` where one is named: fp8, int8 or nf4.
    """
    files = family.files

    def load(_: Any, part: str, kind: Any, dtype: torch.dtype, *__: Any, **___: Any) -> nn.Module:
        return random_model(kind, files.config(part), dtype, device, home, form)

    with patch.object(type(files), "load", load):
        yield


def random_model(
    kind: Any, config: Mapping[str, Any], dtype: torch.dtype, device: torch.device, home: torch.device, form: str = ""
) -> nn.Module:
    """A model in `dtype` but for what its class keeps in float32; a seed gives the same numbers in every form."""
    import torch
    from torch import nn

    from trainer.memory.blocks import blocks_of
    from trainer.models.loading import empty_model

    made = empty_model(kind, dict(config))
    exact = set(getattr(made, "_keep_in_fp32_modules", None) or ())
    frozen = {id(layer) for block in blocks_of(made).values() for layer in block.modules() if type(layer) is nn.Linear}
    torch.manual_seed(SEED)
    for path, module in list(made.named_modules()):
        for name, empty in module._parameters.items():
            if empty is not None:
                own = torch.float32 if exact & {*path.split("."), name} else dtype
                module._parameters[name] = nn.Parameter(_random(name, empty, own, device), requires_grad=False)
        layer = module
        if form and id(module) in frozen and module._parameters["weight"].dtype == dtype:
            layer = _quantized(module, form, dtype)
            parent, _, place = path.rpartition(".")
            setattr(made.get_submodule(parent), place, layer)
            module._parameters.clear()  # this loop's list holds the module
        for tensor in (*layer.parameters(recurse=False), *layer.buffers(recurse=False)):
            tensor.data = tensor.data.to(home)
    return made.eval()


def _random(name: str, empty: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Small random numbers; the weights of norms are about one."""
    import torch

    made = torch.empty(empty.shape, dtype=dtype, device=device).normal_(0, DEVIATION)
    return made.add_(1) if name == "weight" and empty.dim() == 1 else made


def _quantized(layer: Any, form: Any, dtype: torch.dtype) -> nn.Module:
    from trainer.memory.frozen import FrozenLinear
    from trainer.memory.quantize import quantized

    return FrozenLinear(quantized(layer.weight.data, form), layer.in_features, layer.bias, dtype)


def random_data(full: Full, family: ModelFamily, sizes: Sequence[Size], count: int = 1) -> Any:
    """A dataset of so many random clips of each size, drawn once."""
    import torch

    from trainer.data.dataset import Item
    from trainer.job import Bucket

    generator = torch.Generator().manual_seed(SEED)
    items, encodings = [], {}
    for number, (frames, height, width) in enumerate(size for size in sizes for _ in range(count)):
        name, latents = f"clip {number}", family.spec.latent_shape(frames, height, width)
        bucket = Bucket(frames=frames, height=height, width=width)
        sections = family.spec.sections(frames)
        items.append(Item(name, Path("clip.mp4"), ("a caption",), bucket, sections, 1, name, sections=sections))
        first = {"first_frame": (latents[0], 1, SIDE, SIDE)} if family.spec.first_frame_optional else {}
        shapes = {"latents": latents, **{key: sized(shape, latents) for key, shape in {**full.given, **first}.items()}}
        encodings[name] = {key: torch.randn(shape, generator=generator) for key, shape in shapes.items()}
    text = {name: torch.randn(shape, generator=generator) for name, shape in full.text.items()}
    return SimpleNamespace(
        items=items,
        windows=None,
        latents=lambda item, window=0: family.section(encodings[item.name], window),
        text=lambda *_: text,
        picture=lambda *_: None,
    )


def sized(shape: Sequence[int], latents: Sequence[int]) -> tuple[int, ...]:
    """A shape with the latents' sides in their places."""
    sides = list(latents[-2:])
    return tuple(sides.pop(0) if side == SIDE else side for side in shape)


def told(size: Size) -> str:
    """A size as it is written on the command line."""
    return "x".join(map(str, size))


def size_of(text: str) -> Size:
    """The size that a text such as 81x480x832 says."""
    frames, height, width = map(int, text.split("x"))
    return frames, height, width


def as_json(found: Mapping[str, Any]) -> str:
    """Figures in one line, for the log."""
    return json.dumps(found, default=str)
