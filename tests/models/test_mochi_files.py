"""Mochi's single files: the official ones by their headers, quantised ones by their tensors, and what does not belong."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import save_file

from tests.models.headers import Shape, with_old_scales, write_header
from tests.models.test_recognition import LAYOUTS, opened, shapes_of
from tests.models.test_single_files import assert_same
from tests.tiny.mochi import write_tiny_mochi
from tests.tiny.single_files import quantised, read, write_single_files
from trainer.errors import UserError
from trainer.job import ModelSettings
from trainer.memory.frozen import FrozenLinear
from trainer.models import known_models, open_model
from trainer.models.loading import planned

INSIDE = {"transformer": "model.diffusion_model.", "vae": "vae.", "text": "text_encoders.t5xxl.transformer."}  # of a checkpoint


@pytest.fixture(scope="module")
def parts(core: ModuleType) -> dict[str, dict[str, Shape]]:
    """The tensors of core's full-size classes."""
    operations, root = import_module("comfy.ops").disable_weight_init, Path(str(core.__path__[0]))
    detected = import_module("comfy.model_detection").detect_unet_config({"t5_yproj.weight": torch.zeros(1)}, "")
    model = import_module("comfy.ldm.genmo.joint_model.asymm_models_joint").AsymmDiTJoint
    config = json.loads((root / "text_encoders/t5_config_xxl.json").read_text())
    with torch.device("meta"):
        made = {
            "transformer": model(device="meta", operations=operations, **detected),
            "vae": import_module("comfy.ldm.genmo.vae.model").VideoVAE(),
            "text": import_module("comfy.text_encoders.t5").T5(config, torch.float16, "meta", operations),
        }
    return {name: shapes_of(module) for name, module in made.items()}


@pytest.fixture(scope="module")
def official(parts: dict[str, dict[str, Shape]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file for each official name: full-size headers over no bytes."""
    folder = tmp_path_factory.mktemp("official")
    write_header(folder / "mochi_preview_bf16.safetensors", parts["transformer"], "BF16")
    write_header(folder / "mochi_vae.safetensors", parts["vae"])
    write_header(folder / "t5xxl_fp16.safetensors", parts["text"])
    whole, types = dict[str, Shape](), dict[str, str]()
    for name, file in (("transformer", "mochi_preview_fp8_scaled"), ("text", "t5xxl_fp8_e4m3fn_scaled"), ("vae", "")):
        shapes, own = with_old_scales(parts[name]) if file else (parts[name], {})
        whole |= {INSIDE[name] + tensor: shape for tensor, shape in shapes.items()}
        types |= {INSIDE[name] + tensor: kind for tensor, kind in own.items()}
        if file:
            write_header(folder / f"{file}.safetensors", shapes, own=own)
    write_header(folder / "all_in_one.safetensors", whole, own=types)  # all_in_one/mochi_preview_fp8_scaled in the release
    return folder


@pytest.mark.parametrize(
    "names",
    [
        {"transformer": "mochi_preview_bf16", "vae": "mochi_vae", "text_encoders": ["t5xxl_fp16"]},
        {"transformer": "mochi_preview_fp8_scaled", "vae": "mochi_vae", "text_encoders": ["t5xxl_fp8_e4m3fn_scaled"]},
        {"transformer": "all_in_one"},
    ],
    ids=lambda names: names["transformer"],
)
def test_official_files_are_known_and_fit(official: Path, names: dict[str, str | list[str]]) -> None:
    from diffusers import AutoencoderKLMochi, MochiTransformer3DModel
    from transformers import T5EncoderModel

    files = opened(official, **names)
    assert files.variant == "1-preview"
    kinds = {"transformer": MochiTransformer3DModel, "vae": AutoencoderKLMochi, "text_encoder": T5EncoderModel}
    for part, kind in kinds.items():
        assert files.config(part) == LAYOUTS["mochi"].config(files.variant, part), part
        planned(kind, files.config(part), files._parts[part], strict=part != "text_encoder")


def test_texts_are_tokenized_as_in_core(core: ModuleType, official: Path) -> None:
    from transformers import AutoTokenizer

    model = ModelSettings(transformer=str(official / "all_in_one.safetensors"), tokenizers=str(core.__path__[0]))
    family = open_model(model)
    ours = AutoTokenizer.from_pretrained(family.files.folder("tokenizer"))
    theirs = import_module("comfy.text_encoders.genmo").T5XXLTokenizer()
    text = "A red fox, running over snow; its breath steams."
    padded = [token for token, _ in theirs.tokenize_with_weights(text)[0]]
    assert padded == [*ours(text).input_ids, *[0] * (256 - len(ours(text).input_ids))]


def test_known_without_files() -> None:
    main, shipped = known_models("mochi")
    assert main.spec == shipped.spec and main.layer_shapes == shipped.layer_shapes
    assert shipped.spec.default_bucket == (37, 480, 848)


@pytest.mark.parametrize("half", ["encoder", "decoder"])
@pytest.mark.parametrize("prefix", ["", "bare"])
def test_half_a_vae_is_named(official: Path, parts: dict[str, dict[str, Shape]], tmp_path: Path, half: str, prefix: str) -> None:
    found = {name: shape for name, shape in parts["vae"].items() if name.startswith(half)}
    shapes = {name.removeprefix(f"{half}.") if prefix else name: shape for name, shape in found.items()}
    file, model = write_header(tmp_path / "half.safetensors", shapes), official / "mochi_preview_bf16.safetensors"
    with pytest.raises(UserError, match=rf"model\.vae: '.*half\.safetensors' is a Mochi VAE, its {half} alone, which cannot be trained"):
        open_model(ModelSettings(transformer=str(model), vae=str(file)))


def test_another_number_of_channels_is_named(parts: dict[str, dict[str, Shape]], tmp_path: Path) -> None:
    file = write_header(tmp_path / "x.safetensors", {**parts["transformer"], "x_embedder.proj.weight": (3072, 24, 2, 2)})
    with pytest.raises(UserError, match=r"'.*x\.safetensors' is a Mochi diffusion model, with 24 input channels instead of 12"):
        open_model(ModelSettings(transformer=str(file)))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ModelSettings:
    folder = write_tiny_mochi(tmp_path_factory.mktemp("tiny") / "folder")
    return write_single_files(folder, folder.parent / "files")


@pytest.mark.parametrize("layout", ["old", "new"])
def test_scaled_fp8_is_parted_and_swapped(files: ModelSettings, tmp_path: Path, layout: str) -> None:
    """Queries, keys and values lie in one tensor, gates and values of the feed-forward in the other order; biases are in fp8 too."""
    meant = quantised(files.transformer, tmp_path / "x.safetensors", layout)
    stored, metadata = read(tmp_path / "x.safetensors")
    biases = {name: tensor.to(torch.float8_e4m3fn) for name, tensor in stored.items() if name.endswith(".bias")}
    save_file(stored | biases, tmp_path / "x.safetensors", metadata)
    meant |= {name: tensor.float() for name, tensor in biases.items()}
    save_file({name: tensor.contiguous() for name, tensor in meant.items()}, tmp_path / "meant.safetensors")
    given, wanted = (files.model_copy(update={"transformer": str(tmp_path / f"{name}.safetensors")}) for name in ("x", "meant"))
    for keep in (False, True):
        ours = open_model(given).load_transformer(torch.bfloat16, weights="as stored" if keep else "unquantized")
        assert_same(ours, open_model(wanted).load_transformer(torch.bfloat16))
        frozen = [name for name, layer in ours.named_modules() if isinstance(layer, FrozenLinear)]
        assert ("transformer_blocks.0.attn1.to_k" in frozen and "transformer_blocks.1.ff.net.0.proj" in frozen) == keep


def test_a_checkpoint_of_all_parts(files: ModelSettings, tmp_path: Path) -> None:
    texts = files.text_encoders[0]
    quantised(files.transformer, tmp_path / "model.safetensors", "old")
    quantised(texts, tmp_path / "text.safetensors", "old")
    places = {"transformer": tmp_path / "model.safetensors", "vae": files.vae, "text": tmp_path / "text.safetensors"}
    whole = {INSIDE[part] + name: tensor for part, file in places.items() for name, tensor in read(file)[0].items()}
    save_file(whole, tmp_path / "whole.safetensors")
    ours = open_model(ModelSettings(transformer=str(tmp_path / "whole.safetensors"), tokenizers=files.tokenizers))
    alone = files.model_copy(update={"transformer": str(places["transformer"]), "text_encoders": [str(places["text"])]})
    theirs = open_model(alone)
    assert_same(ours.load_transformer(torch.float32), theirs.load_transformer(torch.float32))
    assert_same(ours.load_vae(), theirs.load_vae())
    encoders = [family.load_text_encoder(torch.float32) for family in (ours, theirs)]
    assert_same(encoders[0].module, encoders[1].module)
    assert len({tuple(encoder.tokenizer("a red circle").input_ids) for encoder in encoders}) == 1


def test_files_in_each_others_places(files: ModelSettings) -> None:
    model, vae, text = files.transformer, files.vae, files.text_encoders[0]
    with pytest.raises(UserError, match=r"model\.transformer: .* is a Mochi VAE\. Choose a diffusion model of .*mochi"):
        open_model(files.model_copy(update={"transformer": vae}))
    with pytest.raises(UserError) as refused:
        open_model(files.model_copy(update={"vae": text, "text_encoders": [model]}))
    assert re.search(rf"model\.vae: '{text}' is a (UM)?T5 text encoder\. Choose a Mochi VAE\.", str(refused.value))
    assert f"model.text_encoders: '{model}' is a Mochi diffusion model. Choose a T5 text encoder." in str(refused.value)
