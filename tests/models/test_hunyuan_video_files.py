"""HunyuanVideo's and FramePack's single files: the official ones by headers of ComfyUI's own classes, small ones by their tensors."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.models.headers import Shape, with_old_scales, write_header
from tests.models.test_recognition import LAYOUTS, opened, shapes_of
from tests.models.test_single_files import assert_same, changed
from tests.tiny.framepack import write_forward, write_framepack
from tests.tiny.hunyuan_video import write_i2v_replace, write_t2v
from tests.tiny.single_files import quantised, read, write_single_files
from trainer.adapters.checkpoints import FileWeights
from trainer.errors import UserError
from trainer.job import ModelSettings
from trainer.memory.frozen import FrozenLinear
from trainer.models import known_models, open_model
from trainer.models.assembly import open_single_files
from trainer.models.hunyuan_video import keys
from trainer.models.loading import planned

T2V, CONCAT, REPLACE = (
    "hunyuan_video_t2v_720p_bf16", "hunyuan_video_image_to_video_720p_bf16", "hunyuan_video_v2_replace_image_to_video_720p_bf16",
)  # fmt: skip
PACKED, PACKED_FP8, PACKED_F1 = "FramePackI2V_HY_bf16", "FramePackI2V_HY_fp8_e4m3fn", "FramePack_F1_I2V_HY_20250503_fp8_e4m3fn"
VAE, VAE_COMFY = "hunyuan_video_vae_bf16", "hunyuan_video_vae_in_comfyui_names"
TEXTS = ["clip_l", "llava_llama3_fp8_scaled"]
MODELS = {  # transformer -> family, variant, image encoder
    T2V: ("hunyuan_video", "t2v", ""),
    CONCAT: ("hunyuan_video", "i2v-concat", "llava_llama3_vision"),
    REPLACE: ("hunyuan_video", "i2v-replace", "llava_llama3_vision"),
    PACKED: ("framepack", "i2v", "sigclip_vision_patch14_384"),
    PACKED_FP8: ("framepack", "i2v", "sigclip_vision_patch14_384"),
    PACKED_F1: ("framepack", "i2v", "sigclip_vision_patch14_384"),
}


def transformer_shapes(**changes: Any) -> dict[str, Shape]:
    """Of ComfyUI's HunyuanVideo, in its own names."""
    arguments: dict[str, Any] = {
        "in_channels": 16, "out_channels": 16, "vec_in_dim": 768, "context_in_dim": 4096, "hidden_size": 3072, "mlp_ratio": 4.0,
        "num_heads": 24, "depth": 20, "depth_single_blocks": 40, "axes_dim": [16, 56, 56], "theta": 256, "patch_size": [1, 2, 2],
        "qkv_bias": True, "guidance_embed": True, "byt5": False, "meanflow": False, "use_cond_type_embedding": False,
        "vision_in_dim": None, "meanflow_sum": False,
    }  # fmt: skip
    operations = import_module("comfy.ops").disable_weight_init
    model = import_module("comfy.ldm.hunyuan_video.model").HunyuanVideo
    return shapes_of(model(device="meta", operations=operations, **{**arguments, **changes}))


def in_original_names(names: dict[str, Any]) -> dict[str, Any]:
    """Under the names of the original release; ComfyUI must make its own of them."""
    made = {}
    for name, value in names.items():
        module, _, parameter = name.rpartition(".")
        ours = keys.TRANSFORMER.found(module).modules[0]
        made[f"{keys.TRANSFORMER.original.place(ours).comfy}.{parameter}"] = value
    return made


def comfy_vae() -> torch.nn.Module:
    """ComfyUI's class with the arguments of its loader."""
    config = {
        "double_z": True, "z_channels": 16, "resolution": 256, "in_channels": 3, "out_ch": 3, "ch": 128, "ch_mult": [1, 2, 4, 4],
        "num_res_blocks": 2, "attn_resolutions": [], "dropout": 0.0, "conv3d": True, "time_compress": 4,
    }  # fmt: skip
    return import_module("comfy.ldm.models.autoencoder").AutoencoderKL(ddconfig=config, embed_dim=16)


@pytest.fixture(scope="module")
def official(core: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file for each official name: full-size headers over no bytes."""
    from diffusers import AutoencoderKLHunyuanVideo, HunyuanVideoFramepackTransformer3DModel
    from transformers import SiglipVisionConfig, SiglipVisionModel

    folder, root = tmp_path_factory.mktemp("official"), Path(str(core.__path__[0]))
    operations = import_module("comfy.ops").disable_weight_init
    vision = import_module("comfy.clip_vision").ClipVisionModel
    clip_config = json.loads((root / "sd1_clip_config.json").read_text())
    with torch.device("meta"):
        pack = shapes_of(HunyuanVideoFramepackTransformer3DModel(has_image_proj=True, has_clean_x_embedder=True))
        llama = shapes_of(import_module("comfy.text_encoders.llama").Llama2({}, torch.float16, "meta", operations))
        clip = shapes_of(import_module("comfy.clip_model").CLIPTextModel(clip_config, torch.float16, "meta", operations))
        seeing = (root / f"clip_vision_{name}.json" for name in ("config_vitl_336_llava", "siglip_384"))
        llava, siglip = (shapes_of(vision(str(config)).model) for config in seeing)
        whole = shapes_of(SiglipVisionModel(SiglipVisionConfig.from_dict(LAYOUTS["framepack"].config("i2v", "image_encoder"))))
        vaes = {VAE: shapes_of(AutoencoderKLHunyuanVideo()), VAE_COMFY: shapes_of(comfy_vae())}
    head = {f"vision_model.head.{name.partition('head.')[2]}": shape for name, shape in whole.items() if "head." in name}
    scaled, types = with_old_scales(llama)
    fp8 = {name: "F8_E4M3" for name, shape in pack.items() if len(shape) == 2}
    concat = transformer_shapes(in_channels=33, guidance_embed=False)
    for name, shapes, own in (
        (T2V, in_original_names(transformer_shapes()), {}), (CONCAT, concat, {}), (REPLACE, in_original_names(transformer_shapes()), {}),
        (PACKED, pack, {}), (PACKED_FP8, pack, fp8), (PACKED_F1, pack, fp8), *((name, shapes, {}) for name, shapes in vaes.items()),
        ("clip_l", clip, {}), ("llava_llama3_fp8_scaled", scaled, types), ("llava_llama3_vision", llava, {}),
        ("sigclip_vision_patch14_384", {**siglip, **head}, {}),
    ):  # fmt: skip
        write_header(folder / f"{name}.safetensors", shapes, "BF16", own)
    return folder


@pytest.mark.parametrize(("name", "vae"), [*((name, VAE) for name in MODELS), (T2V, VAE_COMFY)])
def test_official_files_are_known_and_fit(official: Path, name: str, vae: str) -> None:
    from diffusers import AutoencoderKLHunyuanVideo, HunyuanVideoFramepackTransformer3DModel, HunyuanVideoTransformer3DModel
    from transformers import CLIPTextModel, CLIPVisionModel, LlamaModel, SiglipVisionModel

    family, variant, image = MODELS[name]
    files = opened(official, transformer=name, vae=vae, text_encoders=TEXTS, image_encoder=image)
    assert files.variant == variant
    packed = family == "framepack"
    kinds = {
        "transformer": HunyuanVideoFramepackTransformer3DModel if packed else HunyuanVideoTransformer3DModel,
        "vae": AutoencoderKLHunyuanVideo, "text_encoder": LlamaModel, "text_encoder_2": CLIPTextModel,
        **({"image_encoder": SiglipVisionModel if packed else CLIPVisionModel} if image else {}),
    }  # fmt: skip
    assert [part for part in (*kinds, "image_encoder") if not files.has(part)] == ([] if image else ["image_encoder"])
    for part, kind in kinds.items():
        assert files.config(part) == LAYOUTS[family].config(variant, part), part
        planned(kind, files.config(part), files._parts[part], strict=part in ("transformer", "vae"))


def test_names_of_the_original_release_are_those_that_comfyui_reads(core: ModuleType) -> None:
    ours = transformer_shapes(depth=1, depth_single_blocks=1)
    model = import_module("comfy.supported_models").HunyuanVideo
    assert set(model.process_unet_state_dict(model, in_original_names(ours))) == ours.keys()
    names = in_original_names(ours)
    assert {"double_blocks.0.img_attn_q_norm.weight", "single_blocks.0.k_norm.weight", "txt_in.t_embedder.mlp.0.bias"} <= names.keys()


def test_framepacks_order_is_told_from_the_files_name(official: Path) -> None:
    from trainer.models.framepack import Family

    for name, order in ((PACKED, "backward"), (PACKED_FP8, "backward"), (PACKED_F1, "forward")):
        assert Family(opened(official, transformer=name)).order == order


@pytest.mark.parametrize(
    ("called", "image", "chosen", "variant"),
    [
        ("x", "", "", "t2v"), ("x", "llava_llama3_vision", "", "i2v-replace"), ("my_i2v_v2", "", "", "i2v-replace"),
        ("hunyuan_video_FastVideo_720_fp8_e4m3fn", "", "", "t2v-fast"), ("x_fp8_e4m3fn_fast", "", "", "t2v"),
        ("my_i2v_v2", "", "t2v", "t2v"), ("x", "", "i2v-replace", "i2v-replace"),
    ],
)  # fmt: skip
def test_text_to_video_and_token_replace_look_alike(official: Path, called: str, image: str, chosen: str, variant: str) -> None:
    file = official / f"{called}.safetensors"
    if not file.exists():
        file.symlink_to(official / f"{T2V}.safetensors")
    seen = str(official / f"{image}.safetensors") if image else ""
    settings = ModelSettings(transformer=str(file), image_encoder=seen, variant=chosen)
    assert open_single_files(settings, LAYOUTS)[1].variant == variant


def test_what_belongs_elsewhere_is_refused(official: Path, core: ModuleType, tmp_path: Path) -> None:
    def refusal(**names: Any) -> str:
        with pytest.raises(UserError) as refused:
            opened(official, **{"transformer": REPLACE, **names})
        return str(refused.value)

    assert "is a SigLIP vision encoder. Choose a Llava vision encoder." in refusal(image_encoder="sigclip_vision_patch14_384")
    assert "is a Llava vision encoder. Choose a SigLIP vision" in refusal(transformer=PACKED, image_encoder="llava_llama3_vision")
    assert "clip_l.safetensors' is a CLIP text encoder. Choose a HunyuanVideo VAE." in refusal(vae="clip_l")
    assert "is a HunyuanVideo VAE. Choose a Llama text encoder or a CLIP text encoder." in refusal(text_encoders=[VAE])
    assert "is a FramePack diffusion model. Choose a HunyuanVideo VAE." in refusal(vae=PACKED)
    small = transformer_shapes(depth=1, depth_single_blocks=1, in_channels=32)
    flat: dict[str, Any] = {"patch_size": [2, 2], "axes_dim": [64, 64], "in_channels": 64, "out_channels": 64, "byt5": True}
    image = transformer_shapes(depth=1, depth_single_blocks=1, **flat)
    for shapes, what in ((small, "SkyReels image-to-video"), (image, "HunyuanImage")):
        file = write_header(tmp_path / f"{what}.safetensors", shapes)
        with pytest.raises(UserError, match=rf"is a HunyuanVideo diffusion model, {what}, which cannot be trained"):
            open_single_files(ModelSettings(transformer=str(file)), LAYOUTS)
    newer = transformer_shapes(depth=1, depth_single_blocks=0, vision_in_dim=1152, use_cond_type_embedding=True)
    file = write_header(tmp_path / "newer.safetensors", newer)
    assert LAYOUTS["hunyuan_video"].transformer.read(shapes_in(file)) is None


def shapes_in(file: Path) -> Any:
    from trainer.models.recognition import file_shapes
    from trainer.models.tensor_file import open_tensors

    return file_shapes(open_tensors(file))


@pytest.fixture(scope="module", params=[write_t2v, write_i2v_replace, write_framepack], ids=["t2v", "i2v", "framepack"])
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ModelSettings]:
    folder = request.param(tmp_path_factory.mktemp("tiny") / "folder")
    return folder, write_single_files(folder, folder.parent / "files")


@pytest.mark.parametrize("layout", ["plain", "old", "new"])
def test_fp8_of_fused_layers_loads_to_weight_times_scale(small: tuple[Path, ModelSettings], tmp_path: Path, layout: str) -> None:
    files = small[1]
    meant = quantised(files.transformer, tmp_path / "x.safetensors", layout)
    save_file({name: t.contiguous() for name, t in meant.items()}, tmp_path / "meant.safetensors", read(files.transformer)[1])
    given, wanted = changed(files, transformer=tmp_path / "x.safetensors"), changed(files, transformer=tmp_path / "meant.safetensors")
    for keep in (False, True):
        ours = open_model(given).load_transformer(torch.bfloat16, weights="as stored" if keep else "unquantized")
        assert_same(ours, open_model(wanted).load_transformer(torch.bfloat16))
        assert sum(isinstance(layer, FrozenLinear) for layer in ours.modules()) == (2 * 14 + 2 * 6 if keep else 0)


def test_texts_are_encoded_as_from_the_folder(small: tuple[Path, ModelSettings]) -> None:
    folder, files = small
    ours, theirs = open_model(files), open_model(folder)
    picture = torch.arange(48 * 64 * 3).reshape(48, 64, 3).remainder(251).to(torch.uint8)
    made, wanted = ours.load_text_encoder(torch.float32), theirs.load_text_encoder(torch.float32)
    for text in ("a red circle moves", ""):
        one, other = ours.encode_text(made, text, picture), theirs.encode_text(wanted, text, picture)
        assert torch.equal(one["text"], other["text"])
        assert one["pooled"].shape == other["pooled"].shape
    if ours.spec.image_encoder:
        one, other = (
            model.encode_conditions(model.load_vae(), model.load_image_encoder(torch.float32), {"first_frame": picture}, (37, 48, 64))
            for model in (ours, theirs)
        )
        assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("older", [False, True])
def test_other_names_of_the_transformer(tmp_path: Path, older: bool) -> None:
    """Those of the original release, and ComfyUI's before its norms had weights."""
    folder = write_t2v(tmp_path / "folder")
    files = write_single_files(folder, tmp_path / "files")
    tensors, metadata = read(files.transformer)
    names = {name: name.replace("_norm.weight", "_norm.scale") for name in tensors} if older else in_original_names({n: n for n in tensors})
    renamed = {name: tensors[own] for own, name in names.items()} if older else {name: tensors[own] for name, own in names.items()}
    assert renamed.keys() != tensors.keys()
    save_file(renamed, tmp_path / "x.safetensors", metadata)
    ours = open_model(changed(files, transformer=tmp_path / "x.safetensors")).load_transformer(torch.float32)
    assert_same(ours, open_model(folder).load_transformer(torch.float32))


def test_weights_are_read_one_by_one_in_any_names(tmp_path: Path) -> None:
    """As LoRA are extracted: a fused tensor's part is found in a file of the original release's names too."""
    folder = write_t2v(tmp_path / "folder")
    family, tensors = open_model(folder), read(write_single_files(folder, tmp_path / "files").transformer)[0]
    save_file(in_original_names(tensors), tmp_path / "x.safetensors")
    weights, wanted = FileWeights(tmp_path / "x.safetensors", family), family.load_transformer(torch.float32).state_dict()
    assert weights.names == wanted.keys()
    for name in ("transformer_blocks.1.attn.add_k_proj.weight", "single_transformer_blocks.0.proj_mlp.bias", "norm_out.linear.weight"):
        assert torch.equal(weights.tensor(name), wanted[name])


def test_a_vae_in_comfyuis_names(core: ModuleType, tmp_path: Path) -> None:
    folder = write_t2v(tmp_path / "folder")
    files = write_single_files(folder, tmp_path / "files")
    tensors, metadata = read(files.vae)
    made = import_module("comfy.diffusers_convert").convert_vae_state_dict(tensors)
    assert "decoder.up.3.block.0.conv1.conv.weight" in made and made["decoder.mid.attn_1.q.weight"].dim() == 5
    save_file({name: tensor.contiguous() for name, tensor in made.items()}, tmp_path / "x.safetensors", metadata)
    assert_same(open_model(changed(files, vae=tmp_path / "x.safetensors")).load_vae(), open_model(folder).load_vae())


def test_parts_that_do_not_go_together_or_are_missing(tmp_path: Path) -> None:
    files = write_single_files(write_i2v_replace(tmp_path / "folder"), tmp_path / "files")
    with pytest.raises(UserError, match=r"model\.image_encoder: has no file for image_encoder: this model needs a Llava vision encoder\."):
        open_model(changed(files, image_encoder=""))
    tensors, metadata = read(files.image_encoder)
    wide = {name: torch.zeros(24, 24) if name == "multi_modal_projector.linear_2.weight" else tensor for name, tensor in tensors.items()}
    save_file(wide, tmp_path / "wide.safetensors")
    with pytest.raises(UserError, match=r"wide\.safetensors' has language_size 24, and '.*text_encoder\.safetensors' needs 16\."):
        open_model(changed(files, image_encoder=tmp_path / "wide.safetensors"))
    few = {name: tensor for name, tensor in tensors.items() if name != "multi_modal_projector.linear_1.weight"}
    save_file(few, tmp_path / "few.safetensors", metadata)
    with pytest.raises(UserError, match=r"few\.safetensors: holds no tensor 'multi_modal_projector\.linear_1\.weight'"):
        open_model(changed(files, image_encoder=tmp_path / "few.safetensors")).load_text_encoder(torch.float32)


def test_a_tokenizers_settings_alone_are_no_tokenizer(tmp_path: Path) -> None:
    files = write_single_files(write_t2v(tmp_path / "folder"), tmp_path / "files")
    llama = Path(files.tokenizers) / "text_encoders/llama_tokenizer"
    (llama / "tokenizer.json").rename(llama / "tokenizer_config.json")
    with pytest.raises(UserError, match=r"model\.tokenizers: '.*comfy' has no text_encoders/llama_tokenizer\. Give the folder comfy"):
        open_model(files)


def test_the_forward_order_is_told_from_our_own_files(tmp_path: Path) -> None:
    for write, order in ((write_framepack, "backward"), (write_forward, "forward")):
        assert open_model(write_single_files(write(tmp_path / order), tmp_path / f"{order} files")).order == order


def test_the_variants_are_known_without_files() -> None:
    assert [model.spec.variant for model in known_models("hunyuan_video")] == ["t2v", "i2v-concat", "i2v-replace", "t2v", "t2v"]
    assert [model.spec.step_distilled for model in known_models("hunyuan_video")] == [False, False, False, False, True]
    packs = known_models("framepack")
    assert len(packs) == 2 and packs[0].layer_shapes.items() < packs[1].layer_shapes.items()


def test_comfyuis_clip_tokenizer(core: ModuleType) -> None:
    """From the files that ComfyUI brings, with our configuration of it."""
    from transformers import AutoTokenizer

    from trainer.models.single_files import SingleFiles

    root = Path(str(core.__path__[0]))
    files = SingleFiles(LAYOUTS["hunyuan_video"], "t2v", {}, root)
    tokenizer = AutoTokenizer.from_pretrained(files.folder("tokenizer_2"))
    assert tokenizer("a photo of a cat").input_ids == [49406, 320, 1125, 539, 320, 2368, 49407]
    assert len(tokenizer("a cat " * 100, truncation=True, max_length=77).input_ids) == 77


def test_llamas_rotary_base_is_that_of_the_release() -> None:
    from transformers import LlamaConfig, LlamaModel

    from trainer.models.loading import empty_model

    config = LAYOUTS["hunyuan_video"].config("t2v", "text_encoder")
    model = empty_model(LlamaModel, {**config, "num_hidden_layers": 1})
    assert isinstance(model.config, LlamaConfig)
    base = model.rotary_emb.inv_freq[1].reciprocal() ** (128 / 2)
    assert base.item() == pytest.approx(500_000, rel=1e-3)
