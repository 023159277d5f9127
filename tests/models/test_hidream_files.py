"""HiDream-I1's official files are known by their headers, made from ComfyUI's full-size classes; what does not belong is refused."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.models.headers import Shape, with_old_scales, write_header
from tests.models.test_recognition import LAYOUTS, shapes_of
from tests.models.test_single_files import assert_same
from tests.tiny.hidream import write_tiny_hidream
from tests.tiny.single_files import quantised, read, write_single_files
from trainer.errors import UserError
from trainer.job import ModelSettings
from trainer.models import known_models, open_model
from trainer.models.assembly import open_single_files
from trainer.models.loading import planned
from trainer.models.single_files import SingleFiles

OFFICIAL = {  # file -> variant
    "hidream_i1_full_fp16": "i1-full", "hidream_i1_dev_bf16": "i1-dev", "hidream_i1_fast_bf16": "i1-fast",
    "hidream_i1_full_fp8": "i1-full", "hidream_i1_dev_fp8": "i1-dev", "hidream_i1_fast_fp8": "i1-fast",
}  # fmt: skip
TEXTS = ["clip_l_hidream", "clip_g_hidream", "t5xxl_fp8_e4m3fn_scaled", "llama_3.1_8b_instruct_fp8_scaled"]
MARKS = ["<|begin_of_text|>", "<|eot_id|>"]


def vae_shapes(**changes: Any) -> dict[str, Shape]:
    """Of core's VAE as its loader makes it for Flux' file."""
    sizes = {
        "double_z": True, "z_channels": 16, "resolution": 256, "in_channels": 3, "out_ch": 3, "ch": 128, "ch_mult": [1, 2, 4, 4],
        "num_res_blocks": 2, "attn_resolutions": [], "dropout": 0.0,
    }  # fmt: skip
    coders = import_module("comfy.ldm.modules.diffusionmodules.model")
    with torch.device("meta"):
        halves = {"encoder": coders.Encoder(**{**sizes, **changes}), "decoder": coders.Decoder(**{**sizes, **changes})}
    return {f"{half}.{name}": shape for half, module in halves.items() for name, shape in shapes_of(module).items()}


@pytest.fixture(scope="module")
def official(core: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file for each official name: full-size headers over no bytes."""
    folder, root = tmp_path_factory.mktemp("official"), Path(str(core.__path__[0]))
    operations = import_module("comfy.ops").disable_weight_init
    found = import_module("comfy.model_detection").detect_unet_config({"caption_projection.0.linear.weight": torch.zeros(1)}, "")
    model = import_module("comfy.ldm.hidream.model").HiDreamImageTransformer2DModel(device="meta", operations=operations, **found)
    shapes = shapes_of(model)
    eight = {name: "F8_E4M3" for name, shape in shapes.items() if len(shape) == 2}
    for name in OFFICIAL:
        write_header(folder / f"{name}.safetensors", shapes, own=eight if "fp8" in name else None)
    write_header(folder / "ae.safetensors", vae_shapes(), "F32")
    four = {**vae_shapes(z_channels=4), "quant_conv.weight": (8, 8, 1, 1), "post_quant_conv.weight": (4, 4, 1, 1)}
    write_header(folder / "sd_vae.safetensors", four)
    clip = import_module("comfy.clip_model").CLIPTextModel
    for name, file, tokens in (
        ("clip_l_hidream", "sd1_clip_config", 248),
        ("clip_g_hidream", "clip_config_bigg", 218),
        ("clip_l", "sd1_clip_config", 77),
    ):
        config = {**json.loads((root / f"{file}.json").read_text()), "max_position_embeddings": tokens}
        write_header(folder / f"{name}.safetensors", shapes_of(clip(config, torch.float16, "meta", operations)))
    t5 = json.loads((root / "text_encoders/t5_config_xxl.json").read_text())
    llama = import_module("comfy.text_encoders.llama").Llama2({"vocab_size": 128256}, torch.float16, "meta", operations)
    encoders = {TEXTS[2]: import_module("comfy.text_encoders.t5").T5(t5, torch.float16, "meta", operations), TEXTS[3]: llama}
    for name, module in encoders.items():
        made, own = with_old_scales(shapes_of(module))
        write_header(folder / f"{name}.safetensors", made, own=own)
    return folder


def settings(folder: Path, **changes: Any) -> ModelSettings:
    files: dict[str, Any] = {"transformer": "hidream_i1_full_fp16", "vae": "ae", "text_encoders": TEXTS, **changes}
    texts, variant, tokenizers = files.pop("text_encoders"), files.pop("variant", ""), files.pop("tokenizers", "")
    paths = {slot: str(folder / f"{name}.safetensors") for slot, name in files.items()}
    texts = [str(folder / f"{name}.safetensors") for name in texts]
    return ModelSettings(text_encoders=texts, variant=variant, tokenizers=tokenizers, **paths)  # type: ignore[arg-type]


def opened(folder: Path, **changes: Any) -> SingleFiles:
    name, found = open_single_files(settings(folder, **changes), LAYOUTS)
    assert name == "hidream"
    return found


@pytest.mark.parametrize("name", OFFICIAL)
def test_official_files_are_known(official: Path, name: str) -> None:
    """Variants by their names or the setting, as their headers are alike; text encoders in any order."""
    for texts in (TEXTS, TEXTS[::-1]):
        files = opened(official, transformer=name, text_encoders=texts)
        assert files.variant == OFFICIAL[name]
        for part in ("transformer", "vae", "text_encoder", "text_encoder_2", "text_encoder_3", "text_encoder_4"):
            assert files.has(part) and files.config(part) == LAYOUTS["hidream"].config(files.variant, part), part
    assert opened(official, transformer=name, variant="i1-dev").variant == "i1-dev"


def test_official_files_fit(official: Path) -> None:
    from diffusers import AutoencoderKL, HiDreamImageTransformer2DModel
    from transformers import CLIPTextModelWithProjection, LlamaModel, T5EncoderModel

    files = opened(official)
    kinds: dict[str, Any] = {
        "transformer": HiDreamImageTransformer2DModel, "vae": AutoencoderKL, "text_encoder": CLIPTextModelWithProjection,
        "text_encoder_2": CLIPTextModelWithProjection, "text_encoder_3": T5EncoderModel, "text_encoder_4": LlamaModel,
    }  # fmt: skip
    for part, kind in kinds.items():
        planned(kind, files.config(part), files._parts[part], strict=part in ("transformer", "vae"))


def test_files_in_the_wrong_place(official: Path, core: ModuleType, tmp_path: Path) -> None:
    """Each with what was found, what was expected and what to choose."""
    for changes, found in (
        ({"transformer": "ae"}, r"model\.transformer: '.*' is a Flux VAE\. Choose a diffusion model of .*hidream"),
        ({"vae": "hidream_i1_full_fp16"}, r"model\.vae: '.*' is a HiDream diffusion model\. Choose a Flux VAE\."),
        ({"vae": "sd_vae"}, r"model\.vae: '.*' is a VAE\. Choose a Flux VAE\."),
        ({"text_encoders": [*TEXTS, "clip_l"]}, r"clip_l\.safetensors' is a CLIP text encoder too many\. Remove it\."),
        ({"text_encoders": ["ae"]}, r"is a Flux VAE\. Choose a CLIP text encoder or a T5 text encoder or a Llama text encoder\."),
    ):
        with pytest.raises(UserError, match=found):
            opened(official, **changes)
    for texts, found in (
        (["clip_l", *TEXTS[1:]], "CLIP model 1 reads 77 tokens, and this model gives it 128. Choose this model's own text encoders"),
        ([TEXTS[0], TEXTS[0], *TEXTS[2:]], "have 1536, 4096 and 4096 channels, and the transformer takes 2048, 4096 and 4096."),
        (TEXTS[:3], "has no file for text_encoder_4: this model needs a Llama text encoder. Choose one."),
    ):
        with pytest.raises(UserError) as refused:
            open_model(settings(official, text_encoders=texts, tokenizers=str(core.__path__[0])))
        assert found in str(refused.value)
    o1 = {"t_embedder1.mlp.0.weight": (8, 8), "x_embedder.proj1.weight": (8, 8)}
    write_header(tmp_path / "o1.safetensors", o1)
    with pytest.raises(UserError, match=r"is a HiDream diffusion model, O1, which has no VAE, which cannot be trained"):
        open_single_files(ModelSettings(transformer=str(tmp_path / "o1.safetensors")), LAYOUTS)


def test_tokens_are_those_of_core(official: Path, core: ModuleType, tmp_path: Path) -> None:
    """Of CLIP and T5 by ComfyUI's own files; for Llama's a small stand-in, as not every installation of ComfyUI has it."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import AutoTokenizer

    root, comfy = Path(str(core.__path__[0])), tmp_path / "comfy"
    (comfy / "text_encoders/llama_tokenizer").mkdir(parents=True)
    for name in ("sd1_tokenizer", "text_encoders/t5_tokenizer"):
        (comfy / name).symlink_to(root / name)
    stand_in = Tokenizer(models.WordLevel({"<|begin_of_text|>": 0, "<|eot_id|>": 1, "a": 2, "cat": 3}))
    stand_in.pre_tokenizer = pre_tokenizers.Whitespace()
    stand_in.add_special_tokens(MARKS)
    stand_in.post_processor = processors.TemplateProcessing(single=f"{MARKS[0]} $A", special_tokens=[(MARKS[0], 0)])
    stand_in.save(str(comfy / "text_encoders/llama_tokenizer/tokenizer.json"))
    files = open_model(settings(official, tokenizers=str(comfy))).files
    ours = {number: AutoTokenizer.from_pretrained(files.folder(f"tokenizer{number}")) for number in ("", "_2", "_3", "_4")}
    sd1, xl, sd3 = (import_module(f"comfy.{name}") for name in ("sd1_clip", "sdxl_clip", "text_encoders.sd3_clip"))
    theirs = {"": sd1.SDTokenizer().tokenizer, "_2": xl.SDXLClipGTokenizer().tokenizer, "_3": sd3.T5XXLTokenizer().tokenizer}
    for text in ("a red  Circle, 漢字 don't", "", "x" * 20):
        for number, other in theirs.items():
            assert ours[number](text).input_ids == other(text).input_ids, (number, text)
    ours["_4"].pad_token = ours["_4"].eos_token
    assert ours["_4"]("a cat", padding="max_length", max_length=5).input_ids == [0, 2, 3, 1, 1]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ModelSettings]:
    folder = write_tiny_hidream(tmp_path_factory.mktemp("tiny") / "folder")
    return folder, write_single_files(folder, folder.parent / "files")


def test_a_vae_in_diffusers_names(tiny: tuple[Path, ModelSettings], tmp_path: Path) -> None:
    folder, given = tiny
    tensors = load_file(folder / "vae/diffusion_pytorch_model.safetensors")
    save_file(tensors, tmp_path / "vae.safetensors", read(given.vae)[1])
    assert tensors.keys().isdisjoint(name for name in read(given.vae)[0] if ".mid." in name)
    ours = open_model(given.model_copy(update={"vae": str(tmp_path / "vae.safetensors")}))
    assert_same(ours.load_vae(), open_model(folder).load_vae())


@pytest.mark.parametrize("layout", ["plain", "old", "new"])
def test_fp8_layouts_load_to_weight_times_scale(tiny: tuple[Path, ModelSettings], tmp_path: Path, layout: str) -> None:
    """Kept as they are or unpacked, experts too."""
    given = tiny[1]
    meant = quantised(given.transformer, tmp_path / "fp8.safetensors", layout)
    save_file({name: t.contiguous() for name, t in meant.items()}, tmp_path / "meant.safetensors", read(given.transformer)[1])
    fp8, wanted = (given.model_copy(update={"transformer": str(tmp_path / f"{name}.safetensors")}) for name in ("fp8", "meant"))
    changed = [name for name, tensor in read(given.transformer)[0].items() if not torch.equal(meant[name], tensor)]
    assert "double_stream_blocks.0.block.ff_i.experts.1.w2.weight" in changed
    for keep in (False, True):
        assert_same(
            open_model(fp8).load_transformer(torch.float32, weights="as stored" if keep else "unquantized"),
            open_model(wanted).load_transformer(torch.float32),
        )


def test_it_is_known_without_files() -> None:
    main, *variants = known_models("hidream")
    assert [model.spec.variant for model in (main, *variants)] == ["i1-full", "i1-dev", "i1-fast", "i1-full"]
    assert [model.spec.step_distilled for model in variants] == [True, True, False]
    assert main.layer_shapes["double_stream_blocks.15.block.ff_i.experts.3.w1"][1] == 2560
