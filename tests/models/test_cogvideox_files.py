"""CogVideoX's single files: by their headers in ComfyUI's and in diffusers' names, by their tensors, and what does not belong."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.models.headers import Shape, with_old_scales, write_header
from tests.models.test_recognition import LAYOUTS, opened, shapes_of
from tests.models.test_single_files import assert_same
from tests.tiny.cogvideox import TOKENS, write_tiny_cogvideox
from tests.tiny.single_files import quantised, read, write_single_files
from trainer.errors import UserError
from trainer.job import ModelSettings
from trainer.memory.frozen import FrozenLinear
from trainer.models import known_models, open_model
from trainer.models.loading import planned
from trainer.models.shapes import with_config

BIG = {"num_attention_heads": 48, "num_layers": 42, "use_rotary_positional_embeddings": True}
TABLE, PAIRED = {"use_learned_positional_embeddings": True}, {"patch_size_t": 2}
ARGUMENTS: dict[str, dict[str, Any]] = {  # variant -> arguments of core's class; to core every table of positions is learned
    "2b-t2v": TABLE,
    "5b-t2v": BIG,
    "5b-i2v": {**BIG, **TABLE, "in_channels": 32},
    "1.5-5b-t2v": {**BIG, **PAIRED},
    "1.5-5b-i2v": {**BIG, **PAIRED, "in_channels": 32, "ofs_embed_dim": 512},
}


@pytest.fixture(scope="module")
def official(core: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with full-size headers over no bytes: each transformer as core has it, scaled too, and as diffusers has it."""
    from diffusers import CogVideoXTransformer3DModel

    folder, root = tmp_path_factory.mktemp("official"), Path(str(core.__path__[0]))
    operations = import_module("comfy.ops").disable_weight_init
    transformer = import_module("comfy.ldm.cogvideo.model").CogVideoXTransformer3DModel
    config = json.loads((root / "text_encoders/t5_config_xxl.json").read_text())
    with torch.device("meta"):
        for variant, arguments in ARGUMENTS.items():
            shapes = shapes_of(transformer(device="meta", operations=operations, **arguments))
            write_header(folder / f"{variant}-core.safetensors", shapes, "BF16")
            scaled, own = with_old_scales(shapes)
            write_header(folder / f"{variant}-scaled.safetensors", scaled, "BF16", own)
            theirs: Any = CogVideoXTransformer3DModel.from_config(LAYOUTS["cogvideox"].config(variant, "transformer"))
            write_header(folder / f"{variant}-diffusers.safetensors", shapes_of(theirs), "BF16")
        vae = import_module("comfy.ldm.cogvideo.vae").AutoencoderKLCogVideoX()
        text = import_module("comfy.text_encoders.t5").T5(config, torch.float16, "meta", operations)
    write_header(folder / "cogvideox_vae_bf16.safetensors", shapes_of(vae), "BF16")
    write_header(folder / "t5xxl_fp16.safetensors", shapes_of(text))
    return folder


@pytest.mark.parametrize("names", ["core", "scaled", "diffusers"])
@pytest.mark.parametrize("variant", ARGUMENTS)
def test_released_variants_are_known_and_fit(official: Path, variant: str, names: str) -> None:
    from diffusers import AutoencoderKLCogVideoX, CogVideoXTransformer3DModel
    from transformers import T5EncoderModel

    files = opened(official, transformer=f"{variant}-{names}", vae="cogvideox_vae_bf16", text_encoders=["t5xxl_fp16"])
    assert files.variant == variant
    kinds = {"transformer": CogVideoXTransformer3DModel, "vae": AutoencoderKLCogVideoX, "text_encoder": T5EncoderModel}
    for part, kind in kinds.items():
        assert files.config(part) == LAYOUTS["cogvideox"].config(variant, part), part
        with torch.device("meta"):  # without computing tables of positions
            planned(kind, files.config(part), files._parts[part], strict=part == "transformer")


def test_texts_are_tokenized_as_in_core(core: ModuleType, official: Path) -> None:
    """With padding, which both models see."""
    from transformers import AutoTokenizer

    model = ModelSettings(
        transformer=str(official / "2b-t2v-core.safetensors"), vae=str(official / "cogvideox_vae_bf16.safetensors"),
        text_encoders=[str(official / "t5xxl_fp16.safetensors")], tokenizers=str(core.__path__[0]),
    )  # fmt: skip
    family = open_model(model)
    ours = AutoTokenizer.from_pretrained(family.files.folder("tokenizer"))
    theirs = import_module("comfy.text_encoders.cogvideo").CogVideoXT5Tokenizer()
    for text in ("A red fox, running over snow; its breath steams.", ""):
        ids = ours(text, padding="max_length", max_length=226, truncation=True).input_ids
        assert ids == [token for token, _ in theirs.tokenize_with_weights(text)[0]] and len(ids) == 226


def test_known_without_files() -> None:
    main, *shipped = known_models("cogvideox")
    assert main.spec.variant == "2b-t2v" and [model.spec.variant for model in shipped] == sorted(ARGUMENTS)
    factors = {model.spec.variant: model.files.config("vae")["scaling_factor"] for model in shipped}
    assert factors.pop("2b-t2v") == 1.15258426 and set(factors.values()) == {0.7}
    assert [model.spec.variant for model in shipped if model.spec.conditions] == ["1.5-5b-i2v", "5b-i2v"]
    (learned,) = (model for model in shipped if model.spec.only_size)
    assert learned.spec.only_size == (480, 720)
    assert [(name, tensor.is_meta) for name, tensor in learned.skeleton.named_buffers()] == [("patch_embed.pos_embedding", True)]


@pytest.mark.parametrize(
    ("variant", "changes", "found"),
    [
        ("5b-t2v", {"patch_embed.proj.weight": (3072, 48, 2, 2)}, "with 48 input channels, as inpainting models have, which cannot"),
        ("1.5-5b-t2v", {"patch_embed.proj.weight": (3072, 264)}, "with 33 input channels, as inpainting models have, which cannot"),
        ("5b-i2v", {"patch_embed.pos_embedding": None}, "with 32 input channels and no table of positions, as control models have, which"),
        ("1.5-5b-i2v", {"ofs_embedding_linear_2.weight": None}, r"of a variant that is not known here \(.*Known are .*1\.5-5b-i2v"),
    ],
)
def test_variants_that_cannot_be_trained_are_named(
    official: Path, tmp_path: Path, variant: str, changes: dict[str, Shape | None], found: str
) -> None:
    shapes = {**header(official / f"{variant}-core.safetensors"), **changes}
    file = write_header(tmp_path / "x.safetensors", {name: shape for name, shape in shapes.items() if shape is not None}, "BF16")
    with pytest.raises(UserError, match=rf"model\.transformer: '.*x\.safetensors' is a CogVideoX diffusion model,? {found}"):
        open_model(ModelSettings(transformer=str(file)))


def header(file: Path) -> dict[str, Shape]:
    with file.open("rb") as opened:
        read = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    return {name: tuple(tensor["shape"]) for name, tensor in read.items()}


def single_files(tmp_path: Path, variant: str) -> ModelSettings:
    write_tiny_cogvideox(tmp_path / "folder", variant)
    return write_single_files(tmp_path / "folder", tmp_path / "files")


def test_added_positions_are_the_models_own(tmp_path: Path) -> None:
    """ComfyUI's file holds their table, diffusers makes it."""
    files = single_files(tmp_path, "2b")
    assert "patch_embed.pos_embedding" in read(files.transformer)[0]
    x, text = torch.randn(1, 3, 16, 4, 4), torch.randn(1, TOKENS, 16)
    for dtype in (torch.float32, torch.bfloat16):
        models = [open_model(model).load_transformer(dtype) for model in (files, tmp_path / "folder")]
        with torch.no_grad():
            ours, theirs = (model(x.to(dtype), text.to(dtype), torch.tensor([500]), return_dict=False)[0] for model in models)
        assert torch.equal(ours, theirs) and ours.std() > 0


@pytest.mark.parametrize("variant", ["2b", "5b_i2v", "15_i2v"])
def test_a_file_in_diffusers_names(tmp_path: Path, variant: str) -> None:
    files, folder = single_files(tmp_path, variant), tmp_path / "folder"
    own = with_config("transformer", json.loads((folder / "transformer/config.json").read_text(encoding="utf-8")))
    save_file(load_file(folder / "transformer/diffusion_pytorch_model.safetensors"), tmp_path / "x.safetensors", own)
    ours = open_model(files.model_copy(update={"transformer": str(tmp_path / "x.safetensors")}))
    assert ours.spec.variant == open_model(folder).spec.variant
    assert_same(ours.load_transformer(torch.bfloat16), open_model(folder).load_transformer(torch.bfloat16))


@pytest.mark.parametrize("layout", ["old", "new"])
def test_scaled_fp8(tmp_path: Path, layout: str) -> None:
    files = single_files(tmp_path, "5b")
    meant = quantised(files.transformer, tmp_path / "x.safetensors", layout)
    save_file({name: tensor.contiguous() for name, tensor in meant.items()}, tmp_path / "meant.safetensors", read(files.transformer)[1])
    given, wanted = (files.model_copy(update={"transformer": str(tmp_path / f"{name}.safetensors")}) for name in ("x", "meant"))
    for keep in (False, True):
        ours = open_model(given).load_transformer(torch.bfloat16, weights="as stored" if keep else "unquantized")
        assert_same(ours, open_model(wanted).load_transformer(torch.bfloat16))
        assert isinstance(ours.get_submodule("transformer_blocks.1.attn1.to_k"), FrozenLinear) == keep


def test_files_in_each_others_places(tmp_path: Path) -> None:
    files = single_files(tmp_path, "5b")
    model, vae, text = files.transformer, files.vae, files.text_encoders[0]
    with pytest.raises(UserError, match=r"model\.transformer: .* is a CogVideoX VAE\. Choose a diffusion model of .*cogvideox"):
        open_model(files.model_copy(update={"transformer": vae}))
    with pytest.raises(UserError) as refused:
        open_model(files.model_copy(update={"vae": text, "text_encoders": [model]}))
    assert re.search(rf"model\.vae: '{text}' is a (UM)?T5 text encoder\. Choose a CogVideoX VAE\.", str(refused.value))
    assert f"model.text_encoders: '{model}' is a CogVideoX diffusion model. Choose a T5 text encoder." in str(refused.value)
