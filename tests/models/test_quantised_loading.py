"""Transformers quantised while they are loaded: the same bits from a folder and from single files, inside the blocks alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tests.tiny import ALL, Tiny
from tests.tiny.single_files import quantised, read, write_single_files
from tests.tiny.wan import write_tiny_wan
from trainer.components import Components
from trainer.compute import Compute
from trainer.errors import UserError
from trainer.events import EventLog, Silent
from trainer.job import ComputeSettings, MemorySettings, ModelSettings
from trainer.memory.blocks import blocks_of
from trainer.memory.choices import Quantized
from trainer.memory.frozen import FrozenLinear
from trainer.memory.quantize import quantized
from trainer.models import open_model

HALF = torch.bfloat16
NAMES = {"fp8": "float8_e4m3fn", "int8": "int8", "nf4": "nf4"}
BOUNDS = {"fp8": 0.04, "int8": 0.02, "nf4": 0.13}  # of the error of a layer; tiny ones have few numbers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_wan(tmp_path_factory.mktemp("tiny") / "folder")


@pytest.fixture(scope="module")
def files(folder: Path) -> ModelSettings:
    return write_single_files(folder, folder.parent / "files")


def frozen(model: nn.Module) -> dict[str, FrozenLinear]:
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, FrozenLinear)}


def assert_same(one: nn.Module, other: nn.Module) -> None:
    ours, theirs = one.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name].dtype != theirs[name].dtype or not torch.equal(ours[name], theirs[name])] == []


@pytest.mark.parametrize("tiny", ALL, ids=str)
def test_folder_and_files_give_the_same_bits(tiny: Tiny, tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "folder")
    ours, theirs = open_model(write_single_files(folder, tmp_path / "files")), open_model(folder)
    for number, expert in enumerate(ours.spec.experts):
        form: Quantized = ("nf4", "int8")[number]
        one, other = (family.load_transformer(HALF, expert.part, form) for family in (ours, theirs))
        plain = theirs.load_transformer(HALF, expert.part)
        assert_same(one, other)
        assert not one.training and not any(parameter.requires_grad for parameter in one.parameters())
        linear = {name for name, layer in plain.named_modules() if isinstance(layer, nn.Linear) and layer.weight.dtype == HALF}
        inside = {name for name in linear if any(name.startswith(f"{block}.") for block in blocks_of(plain))}
        layers, rest = frozen(one), plain.state_dict()
        assert layers.keys() == inside and 0 < len(inside) < len(linear)
        for name, layer in layers.items():
            wanted = rest.pop(f"{name}.weight")
            assert layer.form == NAMES[form] and layer.compute_dtype == HALF
            assert (layer.dequantize(torch.float32) - wanted.float()).norm() <= BOUNDS[form] * wanted.float().norm(), name
        state = one.state_dict()
        assert all(torch.equal(tensor, state[name]) and tensor.dtype == state[name].dtype for name, tensor in rest.items())


@pytest.mark.parametrize("form", ["fp8", "int8", "nf4"])
def test_a_stored_quantisation_is_taken_again_from_what_it_stands_for(
    files: ModelSettings, folder: Path, tmp_path: Path, form: Quantized
) -> None:
    meant = quantised(files.transformer, tmp_path / "x.safetensors", "old")
    save_file({name: tensor.contiguous() for name, tensor in meant.items()}, tmp_path / "meant.safetensors", read(files.transformer)[1])
    fp8, plain = (
        open_model(files.model_copy(update={"transformer": str(tmp_path / name)})) for name in ("x.safetensors", "meant.safetensors")
    )
    ours, theirs = fp8.load_transformer(HALF, weights=form), plain.load_transformer(HALF, weights=form)
    if form == "fp8":  # what is stored in the form already is not rounded again
        assert_same(ours, fp8.load_transformer(HALF))
    else:
        assert_same(ours, theirs)
        assert {layer.form for layer in frozen(ours).values()} == {form}


def test_other_fp8_becomes_the_one_that_is_asked_for(files: ModelSettings, tmp_path: Path) -> None:
    tensors, metadata = read(files.transformer)
    name = "blocks.1.ffn.0.weight"
    tensors[name] = tensors[name].to(torch.float8_e5m2)
    save_file(tensors, tmp_path / "x.safetensors", metadata)
    given = open_model(files.model_copy(update={"transformer": str(tmp_path / "x.safetensors")}))
    layer = "blocks.1.ffn.net.0.proj"
    assert {path: held.form for path, held in frozen(given.load_transformer(HALF)).items()} == {layer: "float8_e5m2"}
    found, wanted = frozen(given.load_transformer(HALF, weights="fp8")), quantized(tensors[name].float(), "fp8")
    assert len(found) == 20 and torch.equal(found[layer].weight_data, wanted.data)


@pytest.mark.parametrize("form", ["fp8", "nf4"])
def test_gguf_is_quantised_again(files: ModelSettings, tmp_path: Path, form: Quantized) -> None:
    pytest.importorskip("gguf")
    from tests.models.test_gguf import write_gguf

    write_gguf(tmp_path / "x.gguf", read(files.transformer)[0], "Q8_0")
    family = open_model(files.model_copy(update={"transformer": str(tmp_path / "x.gguf")}))
    plain = family.load_transformer(torch.float32, weights="unquantized")
    layers = frozen(family.load_transformer(HALF, weights=form))
    assert len(layers) == 20 and {layer.form for layer in layers.values()} == {NAMES[form]}
    for name, layer in layers.items():
        assert torch.equal(layer.weight_data, quantized(plain.get_parameter(f"{name}.weight"), form).data)


def sharded(folder: Path, to: Path) -> Path:
    """A copy of a model whose transformer lies in two files."""
    import shutil

    shutil.copytree(folder, to)
    (whole,) = (to / "transformer").glob("*.safetensors")
    tensors = load_file(whole)
    whole.unlink()
    names = sorted(tensors)
    shards = {f"diffusion_pytorch_model-0000{n}-of-00002.safetensors": names[n - 1 :: 2] for n in (1, 2)}
    for file, held in shards.items():
        save_file({name: tensors[name] for name in held}, to / "transformer" / file)
    places = {name: file for file, held in shards.items() for name in held}
    index = to / "transformer" / "diffusion_pytorch_model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}), encoding="utf-8")
    return to


def test_shards_give_the_same_and_are_read_one_tensor_after_the_other(folder: Path, tmp_path: Path) -> None:
    family, whole = open_model(sharded(folder, tmp_path / "shards")), open_model(folder)
    heard = []
    family.files.check = lambda: heard.append(1)
    ours = family.load_transformer(HALF, weights="nf4")
    assert_same(ours, whole.load_transformer(HALF, weights="nf4"))
    assert len(heard) == len(whole.load_transformer(HALF).state_dict())


def test_a_whole_file_left_beside_shards_and_their_index_is_not_read(folder: Path, tmp_path: Path) -> None:
    """As diffusers reads such a folder."""
    family, whole = open_model(sharded(folder, tmp_path / "shards")), open_model(folder)
    save_file({"other": torch.zeros(1)}, tmp_path / "shards/transformer/diffusion_pytorch_model.safetensors")
    for weights in ("as stored", "nf4"):
        assert_same(family.load_transformer(HALF, weights=weights), whole.load_transformer(HALF, weights=weights))


def test_a_folder_that_does_not_fit_is_refused(folder: Path, tmp_path: Path) -> None:
    family = open_model(sharded(folder, tmp_path / "shards"))
    file = next((tmp_path / "shards/transformer").glob("*-00001-*"))
    tensors = load_file(file)
    lacking = dict(list(tensors.items())[1:])
    save_file(lacking, file)
    with pytest.raises(UserError, match=r"shards, transformer: lacks 1 of this model's tensors"):
        family.load_transformer(HALF, weights="nf4")
    config = tmp_path / "shards/transformer/config.json"
    told = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps(told | {"quantization_config": {"quant_method": "bitsandbytes"}}), encoding="utf-8")
    with pytest.raises(UserError, match=r"is quantised already, so memory\.weights cannot be nf4"):
        family.load_transformer(HALF, weights="nf4")


def test_the_setting_says_how_components_hold_a_transformer(folder: Path) -> None:
    family = open_model(folder)
    for setting, forms in (("auto", set()), ("unquantized", set()), ("nf4", {"nf4"}), ("fp8", {"float8_e4m3fn"})):
        memory = MemorySettings.model_validate({"weights": setting})
        parts = Components(family, Compute(ComputeSettings(device="cpu", dtype="bf16")), EventLog(Silent()), memory)
        assert {layer.form for layer in frozen(parts.transformer()).values()} == forms  # type: ignore[arg-type]
