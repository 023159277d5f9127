"""HunyuanVideo-1.5's official files are known by their headers, made from ComfyUI's full-size classes; what does not belong is refused."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.models.headers import Shape, with_old_scales, write_header
from tests.models.test_recognition import LAYOUTS, shapes_of
from tests.models.test_single_files import assert_same
from tests.tiny.hunyuan_video_15 import write_tiny
from tests.tiny.single_files import quantised, read, write_single_files
from trainer.errors import UserError
from trainer.job import ModelSettings
from trainer.models import open_model
from trainer.models.assembly import open_single_files
from trainer.models.loading import planned
from trainer.models.single_files import SingleFiles

SIZES = {  # as core's detection gives them
    "image_model": "hunyuan_video", "in_channels": 65, "patch_size": [1, 1, 1], "out_channels": 32, "vec_in_dim": None,
    "axes_dim": [16, 56, 56], "context_in_dim": 3584, "hidden_size": 2048, "mlp_ratio": 4.0, "num_heads": 16, "depth": 54,
    "depth_single_blocks": 0, "theta": 256, "qkv_bias": True, "byt5": True, "guidance_embed": False, "use_cond_type_embedding": True,
    "vision_in_dim": 1152, "meanflow_sum": True, "meanflow": False,
}  # fmt: skip
RELEASED = {  # core's names -> those of the released files
    r"_attn\.(qkv|proj)\.": r"_attn_\1.", r"_attn\.norm\.query_norm\.": "_attn_q_norm.", r"_attn\.norm\.key_norm\.": "_attn_k_norm.",
    r"_mod\.lin\.": "_mod.linear.", r"mlp\.0\.": "mlp.fc1.", r"mlp\.2\.": "mlp.fc2.", r"^time_in\.in_layer\.": "time_in.mlp.0.",
    r"^time_in\.out_layer\.": "time_in.mlp.2.", r"t_embedder\.in_layer\.": "t_embedder.mlp.0.",
    r"t_embedder\.out_layer\.": "t_embedder.mlp.2.", r"c_embedder\.in_layer\.": "c_embedder.linear_1.",
    r"c_embedder\.out_layer\.": "c_embedder.linear_2.",
}  # fmt: skip
OFFICIAL = {  # file -> variant
    "hunyuanvideo1.5_480p_t2v_fp16": "t2v-480p",
    "hunyuanvideo1.5_480p_i2v_fp16": "i2v-480p",
    "hunyuanvideo1.5_720p_t2v_fp16": "t2v-720p",
    "hunyuanvideo1.5_720p_i2v_fp16": "i2v-720p",
    "hunyuanvideo1.5_480p_t2v_cfg_distilled_fp8_scaled": "t2v-480p-distilled",
    "hunyuanvideo1.5_480p_i2v_cfg_distilled_fp8_scaled": "i2v-480p-distilled",
    "hunyuanvideo1.5_720p_i2v_cfg_distilled_fp8_scaled": "i2v-720p-distilled",
}
TEXTS = ["qwen_2.5_vl_7b_fp8_scaled", "byt5_small_glyphxl_fp16"]
HEAD = {
    "probe": (1, 1, 1152),
    "layernorm.weight": (1152,),
    "layernorm.bias": (1152,),
    "mlp.fc1.weight": (4304, 1152),
    "mlp.fc1.bias": (4304,),
}
POOLING = {  # what core leaves out of SigLIP's file
    **HEAD, "mlp.fc2.weight": (1152, 4304), "mlp.fc2.bias": (1152,), "attention.in_proj_weight": (3456, 1152),
    "attention.in_proj_bias": (3456,), "attention.out_proj.weight": (1152, 1152), "attention.out_proj.bias": (1152,),
}  # fmt: skip


@cache
def core_shapes(**changes: Any) -> dict[str, Shape]:
    operations = import_module("comfy.ops").disable_weight_init
    model = import_module("comfy.ldm.hunyuan_video.model").HunyuanVideo(device="meta", operations=operations, **{**SIZES, **changes})
    return shapes_of(model)


def released(name: str) -> str:
    for pattern, replacement in RELEASED.items():
        name = re.sub(pattern, replacement, name)
    return name


def apart(shapes: dict[str, Shape]) -> dict[str, Shape]:
    """In the authors' own names, which have a block's query, key and value apart."""
    made: dict[str, Shape] = {}
    for name, (rows, *rest) in shapes.items():
        fused = name.startswith("double_blocks.") and "_attn_qkv." in name
        made |= {name.replace("_qkv", own): (rows // 3, *rest) for own in ("_q", "_k", "_v")} if fused else {name: (rows, *rest)}
    return made


@pytest.fixture(scope="module")
def official(core: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file for each official name: full-size headers over no bytes."""
    folder, root = tmp_path_factory.mktemp("official"), Path(str(core.__path__[0]))
    own_names = core_shapes()
    shapes = {released(name): shape for name, shape in own_names.items()}
    supported = import_module("comfy.supported_models").HunyuanVideo15
    assert supported.process_unet_state_dict(None, shapes) == own_names, "core reads the released names"
    assert len(set(shapes) - set(own_names)) > 54 * 10
    for name in OFFICIAL:
        made, own = with_old_scales(shapes) if "scaled" in name else (shapes, {})
        write_header(folder / f"{name}.safetensors", made, own=own)
    write_header(folder / "saved_by_comfyui.safetensors", {f"model.model.{name}": shape for name, shape in own_names.items()})
    write_header(folder / "authors.safetensors", apart(shapes), "BF16")
    write_header(folder / "hunyuanvideo1.5_1080p_sr_distilled_fp16.safetensors", core_shapes(in_channels=98))
    few = {released(name).replace("time_r_in.in_layer", "time_r_in.mlp.0"): shape for name, shape in core_shapes(meanflow=True).items()}
    write_header(folder / "hunyuanvideo1.5_480p_i2v_step_distilled_fp16.safetensors", few)
    operations, coder = import_module("comfy.ops").disable_weight_init, import_module("comfy.ldm.hunyuan_video.vae_refiner")
    sizes: dict[str, Any] = {
        "block_out_channels": [128, 256, 512, 1024, 1024], "num_res_blocks": 2, "ffactor_spatial": 16, "ffactor_temporal": 4,
        "in_channels": 3, "out_channels": 3, "z_channels": 32, "downsample_match_channel": True, "upsample_match_channel": True,
    }  # fmt: skip
    with torch.device("meta"):
        vae = {"encoder": shapes_of(coder.Encoder(**sizes)), "decoder": shapes_of(coder.Decoder(**sizes))}
        siglip = shapes_of(import_module("comfy.clip_vision").ClipVisionModel(str(root / "clip_vision_siglip_384.json")).model)
        qwen = shapes_of(import_module("comfy.text_encoders.llama").Qwen25_7BVLI({}, torch.float16, "meta", operations))
        byt5 = import_module("json").loads((root / "text_encoders/byt5_config_small_glyph.json").read_text())
        glyphs = shapes_of(import_module("comfy.text_encoders.t5").T5(byt5, torch.float16, "meta", operations))
    both = {f"{half}.{name}": shape for half, names in vae.items() for name, shape in names.items() if ".temb_proj." not in name}
    write_header(folder / "hunyuanvideo15_vae_fp16.safetensors", both)
    pooling = {f"vision_model.head.{name}": shape for name, shape in POOLING.items()}
    write_header(folder / "sigclip_vision_patch14_384.safetensors", {**siglip, **pooling})
    write_header(folder / "siglip_without_head.safetensors", siglip)
    made, own = with_old_scales(qwen)
    write_header(folder / f"{TEXTS[0]}.safetensors", made, own=own)
    write_header(folder / f"{TEXTS[1]}.safetensors", glyphs)
    return folder


def opened(folder: Path, **settings: Any) -> SingleFiles:
    def path(name: str) -> str:
        return str(folder / f"{name}.safetensors") if name else ""

    texts = settings.pop("text_encoders", TEXTS)
    variant, files = settings.pop("variant", ""), {slot: path(name) for slot, name in settings.items()}
    given = ModelSettings(text_encoders=[path(name) for name in texts], variant=variant, **files)  # type: ignore[arg-type]
    name, found = open_single_files(given, LAYOUTS)
    assert name == "hunyuan_video_15"
    return found


def parts(name: str) -> dict[str, str]:
    image = {"image_encoder": "sigclip_vision_patch14_384"} if "i2v" in name else {}
    return {"transformer": name, "vae": "hunyuanvideo15_vae_fp16", **image}


@pytest.mark.parametrize("name", OFFICIAL)
def test_official_files_are_known(official: Path, name: str) -> None:
    """By their names, as their headers are alike."""
    files = opened(official, **parts(name))
    assert files.variant == OFFICIAL[name]
    layout, encoders = LAYOUTS["hunyuan_video_15"], ["text_encoder", "text_encoder_2", *(["image_encoder"] if "i2v" in name else [])]
    for part in ("transformer", "vae", *encoders):
        assert files.has(part) and files.config(part) == layout.config(files.variant, part), part


@pytest.mark.parametrize("name", ["hunyuanvideo1.5_480p_i2v_fp16", "saved_by_comfyui", "authors"])
def test_official_files_fit(official: Path, name: str) -> None:
    from diffusers import AutoencoderKLHunyuanVideo15, HunyuanVideo15Transformer3DModel
    from transformers import Qwen2_5_VLTextModel, SiglipVisionModel, T5EncoderModel

    files = opened(official, **{**parts("i2v"), "transformer": name})
    kinds: dict[str, Any] = {"transformer": HunyuanVideo15Transformer3DModel}
    if "i2v" in name:
        kinds |= {
            "vae": AutoencoderKLHunyuanVideo15, "text_encoder": Qwen2_5_VLTextModel, "text_encoder_2": T5EncoderModel,
            "image_encoder": SiglipVisionModel,
        }  # fmt: skip
    for part, kind in kinds.items():
        planned(kind, files.config(part), files._parts[part], strict=part == "transformer")
    if name == "authors":
        headless = opened(official, **{**parts("i2v"), "transformer": name, "image_encoder": "siglip_without_head"})
        planned(SiglipVisionModel, headless.config("image_encoder"), headless._parts["image_encoder"], strict=False)


def test_of_files_that_are_alike_one_can_be_chosen(official: Path) -> None:
    """Whatever they are called; if nothing is said, 480p, for first frames if an image encoder is given."""
    for name, variant in {"t2v": "t2v-480p", "i2v": "i2v-480p"}.items():
        given = parts(name) | {"transformer": "authors"}
        assert opened(official, **given).variant == variant
        assert opened(official, **given, variant=f"{name}-720p").variant == f"{name}-720p"
        named = parts(name) | {"transformer": "hunyuanvideo1.5_480p_t2v_fp16"}
        assert opened(official, **named, variant=f"{name}-720p").variant == f"{name}-720p"


def test_variants_that_cannot_be_trained_are_named(official: Path) -> None:
    for name, what in (("1080p_sr_distilled", "super-resolution"), ("480p_i2v_step_distilled", r"distilled to few steps \(MeanFlow\)")):
        found = rf"model\.transformer: '.*{name}_fp16\.safetensors' is a HunyuanVideo-1\.5 diffusion model, {what}, which cannot be trained"
        with pytest.raises(UserError, match=found):
            opened(official, **parts("t2v") | {"transformer": f"hunyuanvideo1.5_{name}_fp16"})


def test_files_in_the_wrong_place(official: Path, tmp_path: Path) -> None:
    """Each with what was found, what was expected and what to choose."""
    name, given = "hunyuanvideo1.5_480p_t2v_fp16", parts("t2v") | {"transformer": "hunyuanvideo1.5_480p_t2v_fp16"}
    for changes, found in (
        ({"transformer": "hunyuanvideo15_vae_fp16"}, r"model\.transformer: '.*' is a HunyuanVideo-1\.5 VAE\. Choose a diffusion model of"),
        ({"vae": name}, r"model\.vae: '.*' is a HunyuanVideo-1\.5 diffusion model\. Choose a HunyuanVideo-1\.5 VAE\."),
        ({"text_encoders": [name]}, r"is a HunyuanVideo-1\.5 diffusion model\. Choose a Qwen 2\.5 text encoder or a ByT5 text encoder\."),
        ({"image_encoder": TEXTS[0], "variant": "i2v-480p"}, r"is a Qwen 2\.5 text encoder\. Choose a SigLIP vision encoder\."),
        ({"image_encoder": "sigclip_vision_patch14_384", "variant": "t2v-480p"}, "is not needed by this model. Leave it empty."),
    ):
        with pytest.raises(UserError, match=found):
            opened(official, **{**given, **changes})
    with pytest.raises(UserError) as refused:
        open_model(ModelSettings(transformer=str(official / f"{name}.safetensors"), variant="i2v-480p", tokenizers=str(tmp_path)))
    for found in (
        "model.image_encoder: has no file for image_encoder: this model needs a SigLIP vision encoder. Choose one.",
        "model.text_encoders: has no file for text_encoder_2: this model needs a ByT5 text encoder. Choose one.",
        "has no text_encoders/qwen25_tokenizer. Give the folder comfy of a ComfyUI installation",
    ):
        assert found in str(refused.value)


def test_tokens_are_those_of_core(core: ModuleType, official: Path) -> None:
    """Of both tokenizers, with the marks of the prompt template; ByT5's needs no file."""
    from transformers import AutoTokenizer

    settings = ModelSettings(
        transformer=str(official / "hunyuanvideo1.5_720p_t2v_fp16.safetensors"), vae=str(official / "hunyuanvideo15_vae_fp16.safetensors"),
        text_encoders=[str(official / f"{name}.safetensors") for name in TEXTS], tokenizers=str(core.__path__[0]),
    )  # fmt: skip
    files = open_model(settings).files
    ours = [AutoTokenizer.from_pretrained(files.folder(part)) for part in ("tokenizer", "tokenizer_2")]
    kinds = import_module("comfy.text_encoders.hunyuan_video").HunyuanVideo15Tokenizer()
    theirs = [kinds.qwen25_7b.tokenizer, kinds.byt5.tokenizer]
    for text in ("a red  circle, 漢字 don't", "<|im_start|>user\nx<|im_end|>\n<|vision_start|>", 'Text "Öffnen". '):
        for own, other in zip(ours, theirs, strict=True):
            assert own(text).input_ids == other(text).input_ids, text
    message = [{"role": "system", "content": "S"}, {"role": "user", "content": "a cat"}]
    rendered = ours[0].apply_chat_template(message, add_generation_prompt=True, tokenize=False)
    assert rendered == "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na cat<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("layout", ["old", "new"])
@pytest.mark.parametrize("names", ["saved by core", "released", "authors"])
def test_names_and_fp8_layouts_load_to_the_same_tensors(tmp_path: Path, layout: str, names: str) -> None:
    """With the query, key and value of a block in one or apart, their scale for all of them or one each."""
    given = write_single_files(write_tiny(tmp_path / "folder", "t2v"), tmp_path / "files")
    tensors, metadata = read(given.transformer)
    renamed = tensors if names == "saved by core" else {released(name): tensor for name, tensor in tensors.items()}
    if names == "authors":
        for name in [name for name in renamed if name.startswith("double_blocks.") and "_attn_qkv." in name]:
            parted = zip(("_q", "_k", "_v"), renamed.pop(name).chunk(3), strict=True)
            renamed |= {name.replace("_qkv", own): rows.contiguous() for own, rows in parted}
    save_file(renamed, tmp_path / "plain.safetensors", metadata)
    meant = quantised(tmp_path / "plain.safetensors", tmp_path / "fp8.safetensors", layout)
    save_file({name: tensor.contiguous() for name, tensor in meant.items()}, tmp_path / "meant.safetensors", metadata)
    assert sum(not torch.equal(meant[name], renamed[name]) for name in meant) == 2 * (14 if names == "authors" else 10)
    plain, wanted, fp8 = (given.model_copy(update={"transformer": str(tmp_path / f"{n}.safetensors")}) for n in ("plain", "meant", "fp8"))
    assert_same(open_model(plain).load_transformer(torch.float32), open_model(given).load_transformer(torch.float32))
    for keep in (False, True):
        ours = open_model(fp8).load_transformer(torch.float32, weights="as stored" if keep else "unquantized")
        assert_same(ours, open_model(wanted).load_transformer(torch.float32))
